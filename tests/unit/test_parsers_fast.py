# SPDX-License-Identifier: Apache-2.0
"""Ways of reading that look at few lines of a big file find the same as reading every line."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace

import pytest
from burnin import parsers
from burnin.parsers.nccl import Parser
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


def dmon_record(seed: int, samples: int, odd: float) -> list[str]:
    """Return a record of three GPUs and a switch, in which now and then a row is odd."""
    rng = random.Random(seed)
    names = ["GPU 0", "GPU 1", "GPU 5", *(["Switch 2"] if seed % 3 else [])]
    out: list[str] = []
    xid = 0
    for i in range(samples):
        if i % 14 == 0:
            out += ["#Entity   TMPTR  POWER     XIDER     ", "ID        C      W                   "]
        for name in names:
            cells = [f"{60 + rng.randrange(9)}", f"{rng.uniform(90, 700):.3f}", f"{xid}"]
            kind = rng.random()
            if kind < odd:
                cells[rng.randrange(3)] = rng.choice(["N/A", "nan", "1_0", "1e3", "-4", "", "3.5.1", "79"])
            if kind < odd / 10:
                xid = rng.choice([31, 79])
            row = f"{name:<10s}{cells[0]:<7s}{cells[1]:<10s}{cells[2]:<10s}"
            out.append(row[: rng.randrange(30)] if odd / 2 < kind < odd * 0.6 else row)
            if odd * 0.9 < kind < odd:
                out.append(rng.choice(["", "an odd line", "#Entity   TMPTR  POWER", "GPU 1", "\x07", "error: x"]))
    return [*out, "dmon was stopped due to receiving a signal."]


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.integers(1, 300),
    st.sampled_from([0.0, 0.002, 0.02, 0.2]),
    st.sampled_from([500, 3000, 1 << 20]),
    st.booleans(),
)
def test_a_dmon_record_in_blocks(seed: int, samples: int, odd: float, chunk: int, ended: bool) -> None:
    lines = dmon_record(seed, samples, odd)
    slow = parsers.parser_for("dcgmi-dmon")
    for number, line in enumerate(lines, 1):
        slow.feed(number, line)
    if not ended:
        slow.unterminated(len(lines))  # type: ignore[attr-defined]
    expected = slow.finish()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("burnin.parsers.common.CHUNK", chunk)
        patch.setattr("burnin.parsers.dcgmi_dmon.PIECE", 2000)
        fast = parsers.read_bytes("dcgmi-dmon", ("\n".join(lines) + ("\n" if ended else "")).encode(), strict=True)
    assert (fast.verdict, fast.complete, fast.problems) == (expected.verdict, expected.complete, expected.problems)
    assert [(s.kind, s.line, s.gpu, s.value) for s in fast.signals if s.unit != "W"] == [
        (s.kind, s.line, s.gpu, s.value) for s in expected.signals if s.unit != "W"
    ]
    for reading in (fast, expected):  # sums of other parts are rounded differently
        for fields in reading.data["entities"].values():
            for one in fields.values():
                if "mean" in one:
                    one["mean"] = pytest.approx(one["mean"])
    assert fast.data == expected.data


def nccl_log(seed: int, lines: int) -> list[str]:
    """Return an nccl log into which NCCL's own messages and lines of other samples were thrown."""
    rng = random.Random(seed)
    paths = sorted((DATA / "nccl").glob("*.log"))
    out = rng.choice(paths).read_text().split("\n")
    other = [line for line in rng.choice(paths).read_text().split("\n") if "srun: " not in line]
    for _ in range(lines):
        rank = rng.randrange(16)
        head = f"burn0{rank // 8 + 1}:{41000 + rank}:{41050 + rank} [{rank % 8}] NCCL "
        message = rng.choices(
            [
                f"INFO Channel {rng.randrange(32):02d}/0 : 1[1] -> 0[0] via P2P",
                "INFO Using network " + rng.choice(["IB", "Socket"]),
                "INFO NET/IB : No device found.",
                "WARN NET/IB : mlx5_3:1 Got async event : port error",
                "INFO a\rb NCCL INFO c",
                "INFO aburn02:41011:41133 [3] NCCL WARN glued",
                "INFO Channel 01/0 : 8[0] -> 0[0] [send] via NET/Socket/0",
            ],
            [100, 2, 0.2, 0.2, 0.2, 0.2, 0.2],
        )[0]
        at = rng.randrange(len(out) + 1)
        out[at:at] = [rng.choice(other)] if rng.random() < 0.02 else [head + message]
    return out


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(0, 400), st.sampled_from([512, 4096, 1 << 16]), st.booleans())
def test_an_nccl_log_of_which_messages_are_skipped(seed: int, lines: int, block: int, ended: bool) -> None:
    data = ("\n".join(nccl_log(seed, lines)).rstrip("\n") + ("\n" if ended else "")).encode()
    expected = parsers.read_bytes("nccl", data, strict=True)
    with pytest.MonkeyPatch.context() as patch, tempfile.NamedTemporaryFile() as file:
        patch.setattr("burnin.parsers.common.BLOCK", block)
        patch.setattr("burnin.parsers.nccl.Parser.candidates", replace(Parser.candidates, from_size=0))
        file.write(data)
        file.flush()
        fast = parsers.read_file("nccl", file.name, strict=True)
    assert found(fast) == found(expected)
