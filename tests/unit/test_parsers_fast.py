# SPDX-License-Identifier: Apache-2.0
"""Ways of reading that look at few lines of a big file find the same as reading every line."""

from __future__ import annotations

import random

import pytest
from burnin import parsers
from burnin.parsers.reading import Reading
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.parser_samples import DATA

NOISE = [
    "systemd[1]: Started Session 411 of User root.",
    'audit: type=1400 audit(1767931912.123:77): apparmor="STATUS" operation="profile_load" name="x" pid=411',
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth411: link becomes ready",
    "docker0: port 3(veth411) entered forwarding state",
    "LNet: 4110:0:(api-ni.c:2010:lnet_startup()) Added LNI 10.0.0.7@o2ib [8/256/0/180]",
    "Command line: BOOT_IMAGE=/boot/vmlinuz-5.15 root=UUID=0",
    "café, a byte \ufffd and a bell \x07",
    "\x1b[33mEDAC MC0: \x1b[0m1 CE memory read error on CPU_SrcID#0_MC#0",
    "",
    "    continued without a stamp",
    "x" * 70_000,
]
KERNEL = [
    line
    for path in sorted((DATA / "dmesg").iterdir())
    for line in path.read_text().split("\n")[:60]
    if line and "flood" not in path.name
]
#: Lines that name no host.
OWN = [line for line in KERNEL if parsers.read_lines("dmesg", [line]).data.get("hosts") is None]


def kernel_log(seed: int, size: int, samples: float, hosts: int, boots: bool) -> list[str]:
    """Return a kernel log of noise and of lines from all samples, of one host or of several, perhaps rebooting."""
    rng = random.Random(seed)
    out: list[str] = []
    at, odd = 5.0, 0 if boots else 1
    for _ in range(size):
        at += rng.random()
        if boots and rng.random() < 0.02:
            at = 0.0
            out.append("[    0.000000] Linux version 5.15.0-1042-nvidia")
            out.append("[    0.000000] Command line: BOOT_IMAGE=/boot/vmlinuz")
        if rng.random() < samples:
            out.append(rng.choice(OWN if hosts == 1 else KERNEL))
        else:
            noise = rng.choices(NOISE, [20, 20, 20, 20, 20, odd, 0.1, 1, odd, odd, 0.03])[0]
            prefix = f"burn{rng.randrange(hosts):02d}: " if hosts > 1 else ""
            out.append(f"{prefix}[{at:12.6f}] {noise}" if noise[:1] not in ("", " ") else noise)
    return [*out, f"[{at:12.6f}] the end"]


def found(reading: Reading) -> object:
    return reading.verdict, reading.recognised, reading.complete, reading.signals, reading.data, reading.problems


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.integers(1, 1000),
    st.sampled_from([0.0, 0.003, 0.05]),
    st.sampled_from([1, 1, 1, 3]),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
@example(1, 1000, 0.003, 1, False, "\n", True)
def test_a_kernel_log_in_blocks(
    seed: int, size: int, samples: float, hosts: int, boots: bool, end: str, ended: bool
) -> None:
    lines = kernel_log(seed, size, samples, hosts, boots and not samples and hosts == 1)
    data = (end.join(lines) + (end if ended else "")).encode()
    slow = parsers.parser_for("dmesg", whole=True)
    for number, line in enumerate(lines, 1):
        slow.feed(number, line[:65536])
    if lines and not ended:
        slow.unterminated(len(lines))  # type: ignore[attr-defined]
    expected = slow.finish()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("burnin.parsers.common.CHUNK", 4096)
        fast = parsers.read_bytes("dmesg", data, strict=True, whole=True)
    if any(len(line) > 65536 for line in lines):
        assert "longer than" in str(fast.problems) and fast.verdict != "pass"
        return
    if samples:  # stamps of many clocks, in no order: which of them go back depends on what is looked at
        for reading in (fast, expected):
            for key in ("clock_jumps", "first_time", "last_time", "hosts"):
                reading.data.pop(key, None)
            reading.problems = [p for p in reading.problems if "stamps go back" not in p]
    assert found(fast) == found(expected)
