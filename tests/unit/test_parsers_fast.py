# SPDX-License-Identifier: Apache-2.0
"""Ways of reading that look at few lines of a big file find the same as reading every line."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace

import pytest
from burnin import parsers
from burnin.parsers.dcgmi_dmon import Parser as DmonParser
from burnin.parsers.nccl import Parser
from burnin.parsers.reading import Reading, Signal
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


#: What a cell may hold instead of a plain number.
ODD_CELLS = [
    "N/A", "[N/A]", "-", "ERR!", "nan", "inf", "-4", "-0.5", "+5", "1_0", "1e3", "", "3.5.1", "5.", ".5", "007", "79", "0",
    "123456789012345", "99999999999999", "0.123456789012", "1 2", "\u0663", "\u00e9", "0x1F", "60\t", "6\x000", "6\x070", "#",
]  # fmt: skip
ODD_LINES = [
    "", " ", "an odd line", "#Entity   TMPTR  POWER", "#Entity   POWER     TMPTR     XIDER     ", "# a comment", "GPU 1", "\x07",
    "error: x", "ID        F      W                   ", "dmon was stopped due to receiving a signal.", "GPU 0     60     1.0       0",
    "burn07: GPU 0     60     1.0       0", "GPU 99    60     1.0       0", "x" * 3000, "GPU 0     60     1.0  7    0",
]  # fmt: skip


def dmon_record(seed: int, samples: int, odd: float) -> list[str]:
    """Return a record of some entities in columns of some form, in which now and then a row is odd."""
    rng = random.Random(seed)
    names = rng.choice(
        [["GPU 0"], ["GPU 0", "GPU 1", "GPU 5"], ["GPU 0", "GPU 1", "Switch 2"], [f"GPU {i}" for i in range(12)]]
    )
    columns = rng.choice(
        [["TMPTR", "POWER", "XIDER"], ["TMPTR", "POWER"], ["POWER", "FBUSD", "SMACT", "GPUTL"], ["POWER", "POWER"]]
    )
    align = rng.choice("<<>")
    width = rng.choice([10, 12, 16])
    every = rng.choice([1, 3, 14, 14, 14, 10_000])
    wide = rng.random() < 0.7  # numbers of more and fewer digits
    never = rng.choice(names) if rng.random() < 0.3 else ""  # an entity that has no number for a column
    low, xid, out = 50 if wide else 690, 0, []
    line = f"{{:{align}10s}}".format
    cell = f"{{:{align}{width}s}}".format
    for i in range(samples):
        if i % every == 0:
            out += [
                f"{'#Entity' if align == '<' else '# Entity':10s}" + "".join(map(cell, columns)),
                line("ID") + "".join(map(cell, ["C", "W", "", ""][: len(columns)])),
            ]
        for name in names:
            values = {
                "TMPTR": f"{rng.randrange(95, 105) if wide else rng.randrange(60, 69)}",
                "POWER": f"{rng.uniform(low, 700):.3f}",
                "FBUSD": f"{10 ** min(12, width - 2) + rng.randrange(99)}",
                "SMACT": f"{rng.random():.{rng.choice([3, 3, 4]) if wide else 3}f}",
                "GPUTL": "100",
                "XIDER": f"{xid}",
            }
            cells = [values[column] for column in columns]
            if name == never:
                cells[0] = "N/A"
            kind = rng.random()
            if kind < odd:
                cells[rng.randrange(len(cells))] = rng.choice(ODD_CELLS)
            if kind < odd / 10:
                xid = rng.choice([31, 79])
            row = line(name) + "".join(map(cell, cells))
            out.append(row[: rng.randrange(30)] if odd / 2 < kind < odd * 0.6 else row)
            if odd * 0.9 < kind < odd:
                out.append(rng.choice(ODD_LINES))
    return [*out, "dmon was stopped due to receiving a signal."]


def damaged(data: bytes, how: str, rng: random.Random) -> bytes:
    """Return a text as other programs pass it on, or with a few bytes lost."""
    if how == "bytes":
        out = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            out[rng.randrange(len(out))] = rng.choice(b"\xff\0\n\r\x1b 7#.-")
        return bytes(out)
    if how == "utf-16":
        return data.decode().encode("utf-16")
    if how == "crlf":
        return data.replace(b"\n", b"\r\n")
    if how == "lines":
        lines = data.split(b"\n")
        del lines[rng.randrange(len(lines)) :][:1], lines[rng.randrange(len(lines))]
        return b"\n".join(lines)
    if how in ("ansi", "pdsh", "srun"):
        before, after = {"ansi": (b"\x1b[32m", b"\x1b[0m"), "pdsh": (b"burn01: ", b""), "srun": (b"3: ", b"")}[how]
        some = rng.random() < 0.5
        lines = data.split(b"\n")
        return b"\n".join(before + one + after if some or rng.random() < 0.01 else one for one in lines)
    return data


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.integers(1, 200),
    st.sampled_from([0.0, 0.0, 0.001, 0.01, 0.2]),
    st.sampled_from([100, 500, 3000]),
    st.sampled_from(["", "", "", "bytes", "lines", "crlf", "ansi", "pdsh", "srun", "utf-16"]),
    st.booleans(),
    st.sampled_from([None, None, "burn09"]),
)
@example(996752268, 155, 0.0, 3000, "bytes", True, "burn09")  # a carriage return before N/A
@example(450941312, 152, 0.001, 3000, "bytes", True, "burn09")  # a carriage return within a header
def test_a_dmon_record_in_stacks(
    seed: int, samples: int, odd: float, chunk: int, how: str, ended: bool, host: str | None
) -> None:
    text = "\n".join(dmon_record(seed, samples, odd)) + ("\n" if ended else "")
    data = damaged(text.encode(), how, random.Random(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("burnin.parsers.common.CHUNK", chunk)
        patch.setattr("burnin.parsers.dcgmi_dmon.FEW", 200)
        patch.setattr("burnin.parsers.dcgmi_dmon.PATIENCE", 1 + seed % 20)
        patch.setattr("burnin.parsers.dcgmi_dmon.MOST_PATIENCE", 30)
        fast = parsers.read_bytes("dcgmi-dmon", data, strict=True, host=host)
        patch.delattr("burnin.parsers.dcgmi_dmon.Parser.scan")
        expected = parsers.read_bytes("dcgmi-dmon", data, strict=True, host=host)
    assert found(fast) == found(expected)


def test_most_rows_of_a_dmon_record_are_read_in_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [0]
    feed = DmonParser.feed

    def count(self: DmonParser, number: int, line: str) -> list[Signal]:
        rows[0] += 1
        return feed(self, number, line)

    monkeypatch.setattr(DmonParser, "feed", count)
    monkeypatch.setattr("burnin.parsers.common.CHUNK", 4096)
    for seed in range(20):  # of all forms but one, in which a name stands for two columns
        lines = dmon_record(seed, 1_500, 0.0)
        rows[0] = 0
        parsers.read_bytes("dcgmi-dmon", "\n".join(lines).encode())
        assert lines[0].count("POWER") > 1 or rows[0] < 0.05 * len(lines), (seed, rows[0], len(lines), lines[:6])


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
                "INFO a\rb. NCCL INFO c",  # without the point, it and a line of no message would be taken for two messages
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
        patch.setattr("burnin.parsers.common.STRETCH", 300)
        patch.setattr("burnin.parsers.nccl.Parser.candidates", replace(Parser.candidates, from_size=0))
        file.write(data)
        file.flush()
        fast = parsers.read_file("nccl", file.name, strict=True)
    assert found(fast) == found(expected)
