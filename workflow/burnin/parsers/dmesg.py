# SPDX-License-Identifier: Apache-2.0
"""The kernel log: `dmesg`, `dmesg -T`, `-x`, `--time-format iso|reltime`, raw, syslog and journal, with pdsh prefixes.

Read: NVRM Xid in all its forms since 2012 (open-gpu-kernel-modules kernel_rc.c), NVSwitch SXid (common_nvswitch.h), a
GPU gone without an Xid (osapi.c), mlx5 port events, PCIe AER and DPC, EDAC, MCE and APEI records, hung tasks, lockups,
the out-of-memory killer, a panic.

Verdict. The kernel log has no end mark and reports no checks, only events:
- `fail`: it contains an event that the kernel itself calls fatal or uncorrected: an Xid other than those named in
  `NO_VERDICT_XIDS`, a fatal SXid, a lost GPU, an uncorrected PCIe or memory error, a panic, or a port that went down
  and did not come back;
- `unknown`: the text may have been cut (`whole` was not given), or nothing in it is a kernel line;
- `pass`: the caller knows that the text is whole, it has kernel lines, and nothing of the first kind is in it. Events
  that only context can judge (an application's Xid 13 or 31, a clean-up 45, a hung task, a port that came back) are
  signals and do not decide: they may be older than the test. `needs_context` says that there are some. Whether the log
  reaches back to the start of a test is for judging too: see `first_time` and the signal `log_starts`.

Floods. Events of one kind at one place (host, device, code) are counted without limit; the first and the last
`KEEP_EACH` are kept as signals, so that a flood before a test does not hide what happened in it. `detail["count"]` of
the first signal of a place is its total.

data: `first_time`, `last_time` (float), `clock` of both: "boot" (seconds since boot), "utc" (seconds since 1970, zone
printed), "local" (seconds since 1970 of a wall clock whose zone is not printed, taken as UTC) or "no-year" (as local,
year 2000 assumed unless the option `year` is given); `first_text`, `last_text`; `hosts`: the same for each host;
`xids`: [{"xid", "bdf", "host", "line", "time", "count"}], one an Xid and GPU; `counts`: kind -> events; `gpus`: bdf ->
{"uuid", "serial"}; `clock_jumps`: places where time went back.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar

from burnin.parsers.common import LINE_LIMIT, LineSource, Prefix, bdf, clean, peel, quote, signal
from burnin.parsers.hosted import MOST_HOSTS, HostedParser
from burnin.parsers.reading import Reading, Signal, Verdict

#: Kept signals at each end of a flood of one event at one place.
KEEP_EACH = 8
#: Most places (kind, host, device, code) told apart; more are only counted by kind.
MOST_PLACES = 4096

#: Kinds that are counted at a place and listed once.
_COUNTED = frozenset({"pcie_corrected", "memory_ce"})
#: Xids that say nothing about the hardware by themselves: applications' faults (11, 13, 25, 31, 32, 43, 69, 80, 137),
#: clean-up after another fault (45), notes (37, 38, 63 row remapped as designed, 92, 93, 106, 107, 121, 141, 152-154,
#: 162, 163). After NVIDIA's Xid catalogue ("ignore", "restart app" with an application as the cause).
NO_VERDICT_XIDS = frozenset(
    {11, 13, 25, 31, 32, 37, 38, 43, 45, 63, 69, 80, 92, 93, 106, 107, 121, 137, 141, 152, 153, 154, 162, 163}
)

# -------------------------------------------------------------------------------------------------------- prefixes

_MONTHS = {
    m: i for i, m in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1)
}
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MON = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"

_HOST = re.compile(
    r"([\w.-]+):\s+(?=\[|kern|user|daemon|<\d|\d{4}-\d\d-|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b|" + _MON + r"\s)"
)
_LEVEL = re.compile(
    r"(?:kern|user|daemon|syslog|auth|authpriv|local\d)\s*:(?:emerg|alert|crit|err|warn|notice|info|debug)\s*:\s*"
)
_RAW = re.compile(r"<\d{1,3}>")
_CTIME = re.compile(rf"\[{_DAY} ({_MON}) +(\d{{1,2}}) (\d\d):(\d\d):(\d\d) (\d{{4}})\] ?")
_BOOT = re.compile(r"\[\s*(\d{1,10}\.\d{4,6})(?:\s*<\s*[\d.]+>)?\] ?")
_DELTA = re.compile(r"\[(?:<\s*[\d.]+>|\s*\+[\d.]+)\] ?")
_RELTIME = re.compile(rf"\[({_MON}) ?(\d{{1,2}}) (\d\d):(\d\d)\] ?")
_ISO = re.compile(
    r"(?:\w{3} )?(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
    r"\s?(Z|UTC|[+-]\d\d:?\d\d)?(?=[\s:]|\Z):?\s*"
)
_UNIX = re.compile(r"(\d{9,10}\.\d{6})\s+")
_SYSLOG = re.compile(rf"({_MON}) +(\d{{1,2}}) (\d\d):(\d\d):(\d\d)(?:\.\d+)?\s+")
_KERNEL = re.compile(r"(?:([\w.-]+) )?kernel(?:\[\d+\])?: ?")
_PROGRAM = re.compile(r"([\w.-]+) [\w./-]+(?:\[\d+\])?: ")
_CALLER = re.compile(r"\[\s*[TC]\d+\] ?")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Stamp:
    """When a kernel line was written: `value` in seconds, `clock` as in the module's data, `uptime` if also printed."""

    value: float | None = None
    clock: str | None = None
    text: str = ""
    uptime: float | None = None
    host: str | None = None


def _epoch(year: int, month: int, day: int, hour: int, minute: int, second: int, offset: int = 0) -> float | None:
    try:
        moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC)
    except ValueError:
        return None
    return (moment - _EPOCH).total_seconds() - offset


def strip(line: str, year: int = 2000) -> tuple[str, Stamp, bool]:
    """Take every kernel log prefix off a line; return (message, stamp, whether a prefix of a kernel log was there)."""
    stamp = Stamp()
    kernel = False
    if m := _HOST.match(line):
        stamp.host = m[1]
        line = line[m.end() :]
    for _ in range(6):
        if not line:
            break
        c = line[0]
        if c == "[":
            if m := _BOOT.match(line):
                stamp.uptime = float(m[1])
                if stamp.value is None:
                    stamp.value, stamp.clock, stamp.text = stamp.uptime, "boot", m[0].strip()
            elif m := _CTIME.match(line):
                value = _epoch(int(m[6]), _MONTHS[m[1]], int(m[2]), int(m[3]), int(m[4]), int(m[5]))
                if value is not None and stamp.value is None:
                    stamp.value, stamp.clock, stamp.text = value, "local", m[0].strip()
            elif m := _RELTIME.match(line):
                value = _epoch(year, _MONTHS[m[1]], int(m[2]), int(m[3]), int(m[4]), 0)
                if value is not None and stamp.value is None:
                    stamp.value, stamp.clock, stamp.text = value, "no-year", m[0].strip()
            elif not (m := _DELTA.match(line) or (_CALLER.match(line) if stamp.value is not None else None)):
                break
            kernel = True
        elif c.isdigit():
            if m := _ISO.match(line):
                offset = 0
                zone = m[8]
                if zone and zone[0] in "+-":
                    offset = (int(zone[1:3]) * 60 + int(zone[-2:])) * (-60 if zone[0] == "-" else 60)
                value = _epoch(int(m[1]), int(m[2]), int(m[3]), int(m[4]), int(m[5]), int(m[6]), offset)
                if value is not None:
                    if m[7]:
                        value += float("0." + m[7])
                    stamp.value, stamp.clock, stamp.text = value, "utc" if zone else "local", m[0].strip()
                # The comma before the fraction is dmesg's own; other programs' ISO stamps need the word kernel.
                kernel |= "," in m[0] and len(m[7]) == 6 and zone is not None
            elif m := _UNIX.match(line):
                stamp.value, stamp.clock, stamp.text = float(m[1]), "utc", m[1]
            else:
                break
        elif (c == "<" and (m := _RAW.match(line))) or (m := _LEVEL.match(line)):
            kernel = True
        elif m := _SYSLOG.match(line):
            value = _epoch(year, _MONTHS[m[1]], int(m[2]), int(m[3]), int(m[4]), int(m[5]))
            if value is not None:
                stamp.value, stamp.clock, stamp.text = value, "no-year", m[0].strip()
        elif (m := _ISO.match(line)) and stamp.value is None:
            value = _epoch(int(m[1]), int(m[2]), int(m[3]), int(m[4]), int(m[5]), int(m[6]))
            if value is not None:
                stamp.value, stamp.clock, stamp.text = value, "utc" if m[8] in ("UTC", "Z") else "local", m[0].strip()
        elif m := _KERNEL.match(line):
            if m[1]:
                stamp.host = m[1]
            kernel = True
        else:
            if not kernel and stamp.value is not None and (m := _PROGRAM.match(line)):
                stamp.host = m[1]  # another program's line, the fabric manager's for example
                line = line[m.end() :]
            break
        line = line[m.end() :]
    return line, stamp, kernel


# ----------------------------------------------------------------------------------------------------------- events

_XID = re.compile(
    r"NVRM:\s+(?:GPU\s+)?Xid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?"
    r"(?:\s+GPU-I:(\d+))?(?:\s+GPU-CI:(\d+))?\):\s*(\d{1,4})(?:,\s*(.*?))?(?=\s*NVRM:\s+(?:GPU\s+)?Xid \(|$)"
)
_PID = re.compile(r"pid=(\d*|'<unknown>'|<unknown>)(?:,\s*(?:name=(.*?),\s)?|$)")
_XID_LINK5 = re.compile(r"\b([A-Z]+(?:_[A-Z0-9]+)*) (Fatal|Nonfatal) XC(-?\d+) i(-?\d+) Link (-?\d+)")
_XID_LINK = re.compile(r"(?i)\blink (\d+)\b")
_XID_GPC = re.compile(r"\bGPC (\d+), TPC (\d+)")
_XID_PREVIOUS = re.compile(r"caused by previous Xid (\d+)")
_XID_ACTION = re.compile(r"changed from 0x([0-9a-fA-F]+) \(([^)]*)\) to 0x([0-9a-fA-F]+) \(([^)]*)\)")
_XID_RESET = re.compile(r"RST: (Yes|No), D-RST: (Yes|No)")

_GPU_UUID = re.compile(r"NVRM: GPU at (?:PCI:)?([0-9a-fA-F:.]+): (GPU-[0-9a-fA-F-]+)")
_GPU_SERIAL = re.compile(r"NVRM: GPU Board Serial Number: (\S+)")
_GONE_HEAD = re.compile(r"NVRM: The NVIDIA GPU ([0-9a-fA-F:.]+)")
_GONE = re.compile(r"NVRM: GPU (?:at )?(?:PCI:)?([0-9a-fA-F:.]{7,16}): GPU has fallen off the bus")
_INIT = re.compile(r"NVRM: GPU (?:at )?(?:PCI:)?([0-9a-fA-F:.]{7,16}): RmInitAdapter failed! *(\([^)]*\))?")
_INIT_MINOR = re.compile(r"NVRM: rm_init_adapter failed, device minor number (\d+)")
_D3COLD = re.compile(r"\bnvidia ([0-9a-fA-F:.]{7,16}): .*change power state from D3cold .*(?:inaccessible)")

_SXID = re.compile(r"nvidia-nvswitch(\d+): SXid \(PCI:([0-9a-fA-F:.]+)\): (\d{5}), (.*)")
_SXID_FM = re.compile(
    r"detected NVSwitch (fatal|non-fatal) error (\d{5}) on fid (\d+) on NVSwitch pci bus id ([0-9a-fA-F:.]+)"
    r"(?: physical id (\d+))?(?: port (\d+))?"
)

_MLX_IB = re.compile(r"mlx5_core ([0-9a-fA-F:.]+)(?::)? (mlx5_\w+): Port: (\d+) Link (DOWN|INIT|ARMED|ACTIVE)")
_MLX_ETH = re.compile(r"mlx5_core ([0-9a-fA-F:.]+)(?::)? ([\w.@-]+): Link (down|up)\b")
_MLX_MODULE = re.compile(r"mlx5_core ([0-9a-fA-F:.]+).{0,200}?Port module event\[error\]: module (\d+), (.*)")
_MLX_POWER = re.compile(r"mlx5_core ([0-9a-fA-F:.]+).{0,200}?(Detected insufficient power on the PCIe slot.*)")
_MLX_HEALTH = re.compile(
    r"mlx5_core ([0-9a-fA-F:.]+).{0,200}?(health compromised.*|device's health compromised.*|[Ff]irmware fatal error.*|"
    r"[Hh]igh temperature on sensors.*|Fatal error \d+ detected.*)"
)

_AER_BUS = re.compile(
    r"(\S+) ([0-9a-fA-F]{4,5}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): (?:AER: )?PCIe Bus Error: severity=([A-Za-z]+)"
    r"(?: \(([^)]*)\))?,\s*type=([^,]*)(?:,\s*(?:id=\S+|\(([^)]*)\)))?"
)
_AER_HEAD = re.compile(
    r"pcieport ([0-9a-fA-F:.]+): (?:PCIe )?AER: (?:Multiple )?Uncorrect(?:ed|able) ?\(?(Fatal|Non-Fatal)\)? "
    r"(?:error )?(?:message )?received(?:(?::| from) ([0-9a-fA-F]{4,5}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]))?"
)
_DPC = re.compile(r"(?:pcieport|pcie-dpc) ([0-9a-fA-F:.]+): (?:pcie )?DPC: containment event,? *(.*)")

_EDAC = re.compile(r"EDAC [\w ]*?MC(\d+): (?:(\d+) )?(CE|UE)\b(.*)")
_EDAC_PLACE = re.compile(r' on (\S+)|label "([^"]*)"')
_APEI_SEVERITY = re.compile(r"\{(\d+)\}\[Hardware Error\]:\s+event severity: (\w+)")
_APEI_SECTION = re.compile(r"\{(\d+)\}\[Hardware Error\]:\s+section_type: (.*)")
_MCE = re.compile(r"\[Hardware Error\]: (?:CPU \d+: )?Machine Check(?: Exception)?: *(?:\S+ )?Bank (\d+)")
_MCE_FATAL = re.compile(
    r"Machine Check Exception|Processor context corrupt|Fatal machine check|Uncorrected hardware memory error"
)

_HUNG = re.compile(r"INFO: task (.+?):(\d+) blocked for more than (\d+) seconds")
_LOCKUP = re.compile(
    r"(soft lockup|hard LOCKUP)(?: - CPU#(\d+) stuck for (\d+)s)?|(self-detected stall|detected stalls) on CPU"
)
_OOM = re.compile(r"[Oo]ut of memory: Kill(?:ed)? process (\d+) \(([^)]*)\)")
_PANIC = re.compile(r"Kernel panic - not syncing: ?(.*)")
_CPU_HOT = re.compile(r"(CPU\d+): (?:Core|Package) temperature(?:/speed)? (?:is )?above threshold, cpu clock throttled")

#: Words of which every event line has one; only such lines are looked at further.
_WORDS = (
    "NVRM",
    "SXid (P",
    "NVSwitch pci",
    "mlx5_core",
    "PCIe Bus Error: severity=",
    "[Hardware Error]",
    "EDAC MC",
    "AER: ",
    "DPC: containment",
    "blocked for more than",
    "lockup - CPU",
    "LOCKUP",
    " on CPU",
    "Uncorrected hardware memory",
    "ut of memory: Kill",
    "Kernel panic",
    "clock throttled",
    "D3cold",
)
# Looking for each of these words in 100 MB takes longer than grep does for its whole pattern, and a regular expression
# of them ten times as long. But all of them leave a mark in the few characters kept here, which are a tenth of a log:
# throwing the others away is one pass. What is left of a line is short and much the same in all lines of one message,
# so each is looked at once and then known.
#: Most shortened lines that are remembered as no events.
MOST_KNOWN = 100_000
_NO_TEXT = bytes(set(range(32)) - set(b"\t\n\r\x1b")) + bytes(range(127, 256))
_DROP = bytes(set(range(256)) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ\nx5_-" + _NO_TEXT))
_MARKS: tuple[bytes, ...] = (
    b"NVRM",  # NVRM
    b"SXPCI",  # SXid (PCI:
    b"NVS",  # NVSwitch
    b"x5_",  # mlx5_core
    b"PCIBE",  # PCIe Bus Error
    b"HE",  # [Hardware Error]
    b"EDACMC",  # EDAC MC0
    b"AER",  # AER:
    b"DPC",  # DPC: containment event
    b"INFO",  # INFO: task … blocked, rcu: INFO: … stall on CPU
    b"BUG",  # BUG: soft lockup
    b"LOCKUP",  # hard LOCKUP
    b"U-",  # Uncorrected hardware memory error in user-access
    b"OK",  # Out of memory: Killed
    b"MK",  # Memory cgroup out of memory: Killed
    b"K-",  # Kernel panic - not syncing
    b"CPUP",  # CPU0: Package temperature above threshold
    b"CPUC",  # CPU0: Core temperature above threshold
    b"CPU5P",
    b"CPU5C",
    b"CPU55P",
    b"CPU55C",
    b"BOOT_I",  # Command line: BOOT_IMAGE=…, the second line of a boot
    b"UDD",  # Unable to change power state from D3cold to D0 (DD alone is in every ADDRCONF line)
)


_MARK = re.compile(b"|".join(re.escape(mark) for mark in _MARKS) + b"|[" + re.escape(_NO_TEXT) + b"]")


@dataclass(slots=True)
class _Place:
    """One event at one place: how often, and the signals kept from both ends."""

    count: int = 0
    first: list[Signal] = field(default_factory=list)
    last: deque[Signal] = field(default_factory=lambda: deque(maxlen=KEEP_EACH))


@dataclass(slots=True)
class _Host:
    """What must be remembered of one host between lines."""

    first: Stamp | None = None
    first_line: int = 0
    first_text: str = ""
    last: Stamp | None = None
    newest: Stamp | None = None
    gone: tuple[Signal, int] | None = None  # a "The NVIDIA GPU" message so far, and how many lines it may still have
    serial_for: str | None = None
    apei: dict[str, str] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    aer_head: Signal | None = None
    uncorrected: bool = False
    down: dict[str, bool] = field(default_factory=dict)


#: So many lines at the end of a block are looked at: a boot may begin with the last one.
FOOT = 8
_SECONDS = rb"(\[ *\d+\.\d{6}\]) [^\n]*"
_THREE = re.compile(_SECONDS + rb"\n" + _SECONDS + rb"\n" + _SECONDS)


def _last_lines(block: bytes, end: int, count: int) -> int:
    """Return where the last lines before an offset begin, without splitting the whole block."""
    at = end
    for _ in range(count):
        at = block.rfind(b"\n", 0, at)
        if at < 0:
            break
    return at + 1


def _in_order(block: bytes, end: int) -> bool:
    """Say whether the last three lines begin with seconds since boot, none with less than the one before it."""
    m = _THREE.match(block, _last_lines(block, end, 3), end)
    # Of one length, they are in the order of their texts.
    return m is not None and len(m[1]) == len(m[2]) == len(m[3]) and m[1] <= m[2] <= m[3]


def _parse(raw: bytes, year: int = 2000) -> tuple[str, Prefix, Stamp, bool]:
    body, prefix = peel(clean(raw.decode("utf-8", "replace")))
    return body, prefix, *strip(body, year)[1:]


def _stamped(raw: bytes) -> bool:
    """Say whether a line has a time stamp."""
    return _parse(raw)[2].value is not None


class Parser(HostedParser):
    """Streaming reader of the kernel log. Options: `whole`, `host`, `year` (of stamps without one)."""

    tool: ClassVar[str] = "dmesg"
    program: ClassVar[str] = "dmesg"

    def __init__(self, *, whole: bool = False, host: str | None = None, year: int | None = None, **others: Any) -> None:
        super().__init__(whole=whole, host=host, **others)
        self.year = year if year is not None else 2000
        self.lines = 0
        self.kernel_lines = 0
        self.hosts: dict[str | None, _Host] = {}
        self.places: dict[tuple[Any, ...], _Place] = {}
        self.counts: dict[str, int] = {}
        self.gpus: dict[str, dict[str, str]] = {}
        self.bad = False
        self.context = False
        self.jumps: list[int] = []
        self.plain: set[bytes] = set()

    # ------------------------------------------------------------------------------------------------------ speed

    def scan(self, source: LineSource) -> None:
        """Read a file with the result of line by line, though of most blocks few lines are looked at.

        These are the lines that may be events, those with bytes that are no text, the beginning of a boot, and the last
        ones of a block. The first block, the last one and all in which such a line is another host's are read in full.
        So two things may be missed, if no event is among them: a clock that is set back, but not before the end of the
        block (`CHUNK`) before, and the log of another host that begins and ends within a block.
        """
        held: tuple[int, bytes, list[bytes]] | None = None
        for first, block, whole in source.blocks():
            if whole and held is not None and not block.endswith(b"\n"):
                held = (held[0], held[1] + block, held[2])  # the end of the file, a line without newline
                continue
            short = block.translate(None, _DROP).split(b"\n")
            source.newlines = len(short) - 1
            if held is not None:
                self._block(source, *held, full=held[0] == 1)
            held = (first, block, short)
        if held is not None:
            self._block(source, *held, full=True)

    def _block(self, source: LineSource, first: int, block: bytes, short: list[bytes], full: bool) -> None:
        end = len(block) - block.endswith(b"\n")
        foot = None if full else self._foot(block, end)
        if foot is not None and self.plain.issuperset(short):
            number = first + len(short) - 2
            if _in_order(block, end):
                body, name, stamp, kernel = foot
                if kernel:  # all that this line can say is what time it is
                    self._time(number, name, self.hosts[name], stamp, body)
                return
            last = block[_last_lines(block, end, FOOT) : end].split(b"\n")
            for index in self._with_before(last, len(last) - 1):
                self._give(source, number + 1 - len(last) + index, last[index])
            return
        lines = block[:end].split(b"\n")
        wanted = set(range(len(lines)))
        marked = [] if foot is None else self._wanted(short)
        if foot is not None and self._same_host(lines[i] for i in marked):
            wanted = set().union(*(self._with_before(lines, i) for i in [*marked, len(lines) - 1]))
        for index in sorted(wanted):
            self._give(source, first + index, lines[index])

    def _foot(self, block: bytes, end: int) -> tuple[str, str | None, Stamp, bool] | None:
        """Return body, host and stamp of a block's last line, and whether it is the kernel's.

        None if the block does not go on with the one host's log that was seen so far, in lines of ordinary length.
        """
        body, prefix, stamp, kernel = _parse(block[block.rfind(b"\n", 0, end) + 1 : end], self.year)
        name, known = prefix.host or self.host or stamp.host, self._known()
        if not known or stamp.value is None or (kernel and name not in known) or (prefix.host and not self.several):
            return None
        step = LINE_LIMIT // 2  # a longer line spans one of these without a newline
        if any(block.find(b"\n", at, at + step) < 0 for at in range(0, len(block) - step, step)):
            return None
        return body, name, stamp, kernel

    def _known(self) -> set[str | None]:
        """Return the host that was heard, if there was only one so far."""
        known = {name for name, host in self.hosts.items() if host.first is not None}
        return known if len(known) == 1 else set()

    def _same_host(self, lines: Iterable[bytes]) -> bool:
        """Say whether these lines are of the only host that was heard so far."""
        known = self._known()
        for raw in lines:
            _, prefix, stamp, kernel = _parse(raw)
            if kernel and (prefix.host or self.host or stamp.host) not in known:
                return False
        return True

    def _with_before(self, lines: Sequence[bytes], index: int) -> range:
        """Return a line and those before it that say from when on time went back: a boot begins before its command line."""
        start = max(0, index - 2)
        while start and not _stamped(lines[start]):
            start -= 1
        return range(start, index + 1)

    def _wanted(self, short: list[bytes]) -> list[int]:
        """Return the indices of the shortened lines that have one of `_MARKS`."""
        plain = self.plain
        if len(plain) > MOST_KNOWN:
            plain.clear()
        plain.update(line for line in set(short) - plain if not _MARK.search(line))
        return [i for i, line in enumerate(short) if line not in plain]

    def _give(self, source: LineSource, number: int, raw: bytes) -> None:
        if raw:
            for line_number, text in source._pieces(number, raw):
                self.feed(line_number, text)

    # ------------------------------------------------------------------------------------------------------ lines

    def line(self, number: int, body: str, prefix: Prefix) -> list[Signal]:
        """Take one line without host and launcher prefixes."""
        if not body.strip():
            return []
        if prefix.time is not None:
            # A log shipper's stamp is the kernel's own ISO stamp here: give it back.
            body = prefix.time + " " + body
        message, stamp, kernel = strip(body, self.year)
        name = prefix.host or stamp.host
        host = self.hosts.get(name)
        if host is None:
            if len(self.hosts) >= MOST_HOSTS:
                name = None
            host = self.hosts.setdefault(name, _Host())
        out: list[Signal] = []
        if kernel:
            self.kernel_lines += 1
            if stamp.value is not None:
                out = self._time(number, name, host, stamp, body)
        if any(w in message for w in _WORDS) or (host.gone and message.lstrip().startswith("NVRM")):
            where = prefix if name == prefix.host else Prefix(name, prefix.task, prefix.rank)
            for found in self._events(number, message, host, stamp):
                if found.line == number:
                    found = replace(self._dated(found, stamp), text=quote(body))
                out.append(self._keep(found, where))
        return out

    def _time(self, number: int, name: str | None, host: _Host, stamp: Stamp, body: str) -> list[Signal]:
        last = host.last
        before = last.value if last is not None and last.clock == stamp.clock else None
        # Several CPUs print at once, so a second back and forth is normal; more is a reboot or a set clock.
        if last is not None and before is not None and stamp.value is not None and stamp.value < before - 5:
            if len(self.jumps) < 100:
                self.jumps.append(number)
            self.note(f"line {number}: the time stamps go back ({last.text} to {stamp.text}): reboot or set clock")
        host.last = stamp
        if host.first is None:
            host.first = stamp
            detail: dict[str, Any] = {"clock": stamp.clock}
            if stamp.uptime is not None and stamp.clock != "boot":
                detail["uptime"] = stamp.uptime
            found = signal("log_starts", number, body, Prefix(name), value=stamp.value, unit="s", detail=detail)
            self.counts["log_starts"] = self.counts.get("log_starts", 0) + 1
            host.first_line, host.first_text = number, found.text
            self.places[("log_starts", name)] = _Place(1, [found])
            return [found]
        return []

    def _dated(self, found: Signal, stamp: Stamp) -> Signal:
        if stamp.value is None:
            return found
        detail = {**found.detail, "time": stamp.value, "clock": stamp.clock}
        if stamp.uptime is not None and stamp.clock != "boot":
            detail["uptime"] = stamp.uptime
        return replace(found, detail=detail)

    def _keep(self, found: Signal, prefix: Prefix) -> Signal:
        if found.host is None and prefix.host is not None:
            found = replace(found, host=prefix.host)
        self.counts[found.kind] = self.counts.get(found.kind, 0) + int(found.detail.get("n", 1))
        code = found.value if found.kind in ("xid", "sxid") else found.detail.get("what")
        key = (found.kind, found.host, found.bdf, found.device, code)
        place = self.places.get(key)
        if place is None:
            if len(self.places) >= MOST_PLACES:
                self.note(f"more than {MOST_PLACES} places with events: the rest is only counted")
                return found
            place = self.places[key] = _Place()
        place.count += int(found.detail.get("n", 1))
        if len(place.first) < KEEP_EACH:
            place.first.append(found)
        else:
            place.last.append(found)
        return found

    # ----------------------------------------------------------------------------------------------------- events

    def _events(self, number: int, text: str, host: _Host, stamp: Stamp) -> Iterator[Signal]:
        if "NVRM" in text:
            yield from self._nvrm(number, text, host, stamp)
        elif "D3cold" in text:
            if m := _D3COLD.search(text):
                self.bad = True
                yield signal("gpu_lost", number, text, bdf=bdf(m[1]), detail={"what": "config space inaccessible"})
        elif "SXid" in text or "NVSwitch" in text:
            yield from self._sxid(number, text)
        elif "mlx5_core" in text and "PCIe Bus Error" not in text:
            yield from self._mlx5(number, text, host)
        elif "PCIe Bus Error" in text or "AER:" in text or "DPC:" in text:
            yield from self._pcie(number, text, host, stamp)
        elif "EDAC" in text:
            if m := _EDAC.search(text):
                yield from self._edac(number, text, m)
        elif "Hardware Error]" in text or "hardware memory" in text:
            yield from self._mce(number, text, host)
        else:
            yield from self._software(number, text)

    def _nvrm(self, number: int, text: str, host: _Host, stamp: Stamp) -> Iterator[Signal]:
        if "Xid" in text:
            for each in _XID.finditer(text):
                yield self._xid(number, text, each, host)
            return
        if host.gone is not None:
            head, left = host.gone
            head = replace(head, text=quote(head.text + " " + text.strip()))
            host.gone = (head, left - 1) if left > 1 else None
            if "fallen off the bus" in text and not _GONE.search(text):
                host.gone = None
                self.bad = True
                if head.bdf in host.lost:
                    head.detail["same_event"] = True
                host.lost.add(head.bdf or "")
                yield head
                return
        if m := _GONE.search(text):
            where_ = bdf(m[1])
            again = where_ in host.lost
            if where_:
                host.lost.add(where_)
            self.bad = True
            yield signal(
                "gpu_lost", number, text, bdf=where_,
                detail={"what": "fallen off the bus", **({"same_event": True} if again else {})},
            )  # fmt: skip
        elif m := _GONE_HEAD.search(text):
            if where_ := bdf(m[1]):
                if "fallen off the bus" in text:
                    self.bad = True
                    host.lost.add(where_)
                    yield signal("gpu_lost", number, text, bdf=where_, detail={"what": "fallen off the bus"})
                else:
                    # The message goes on on lines without a stamp; its first line is where and when it happened.
                    head = signal("gpu_lost", number, text.strip(), bdf=where_, detail={"what": "fallen off the bus"})
                    host.gone = (self._dated(head, stamp), 6)
        elif m := _INIT.search(text):
            self.bad = True
            yield signal(
                "gpu_lost", number, text, bdf=bdf(m[1]), detail={"what": "initialisation failed", "code": m[2]}
            )
        elif m := _INIT_MINOR.search(text):
            self.bad = True
            yield signal("gpu_lost", number, text, detail={"what": "initialisation failed", "minor": int(m[1])})
        elif m := _GPU_UUID.search(text):
            where_ = bdf(m[1])
            if where_ and (where_ in self.gpus or len(self.gpus) < 1024):
                self.gpus.setdefault(where_, {})["uuid"] = m[2]
                host.serial_for = where_
        elif (m := _GPU_SERIAL.search(text)) and host.serial_for in self.gpus:
            self.gpus[host.serial_for]["serial"] = m[1]

    def _xid(self, number: int, text: str, m: re.Match[str], host: _Host) -> Signal:
        code = int(m[4])
        rest = m[5] or ""
        where = bdf(m[1])
        detail: dict[str, Any] = {}
        if m[2] is not None:
            detail["gpu_instance"] = int(m[2])
        if m[3] is not None:
            detail["compute_instance"] = int(m[3])
        if p := _PID.match(rest):
            if p[1].isdigit():
                detail["pid"] = int(p[1][:12])
            if p[2] and p[2] != "<unknown>":
                detail["process"] = p[2]
            rest = rest[p.end() :]
        if rest:
            detail["message"] = rest[:300]
        device = None
        hard = code not in NO_VERDICT_XIDS
        if link := _XID_LINK5.search(rest):
            detail.update(unit=link[1], fatal=link[2] == "Fatal", xc=int(link[3]))
            if int(link[5]) >= 0:
                device = f"link{int(link[5]):02d}"
            # NVIDIA prints for NVLink 5 whether the event was fatal: that word, not the code, decides.
            hard = link[2] == "Fatal"
        elif code == 74 and (link2 := _XID_LINK.search(rest)):
            device = f"link{int(link2[1]):02d}"
        if gpc := _XID_GPC.search(rest):
            detail.update(gpc=int(gpc[1]), tpc=int(gpc[2]))
        if previous := _XID_PREVIOUS.search(rest):
            detail["previous"] = int(previous[1])
            hard = False
        if reset := _XID_RESET.search(rest):
            detail.update(reset=reset[1] == "Yes", drain_reset=reset[2] == "Yes")
        if code == 154 and (action := _XID_ACTION.search(rest)):
            detail.update(action=action[4], action_code=int(action[3], 16), action_before=action[2])
            hard = int(action[3], 16) != 0
        if code == 79 and where:
            host.lost.add(where)
        self.bad |= hard
        self.context |= not hard and "previous" not in detail
        return signal("xid", number, text, bdf=where, device=device, value=float(code), detail=detail)

    def _sxid(self, number: int, text: str) -> Iterator[Signal]:
        for each in _SXID.finditer(text):
            message = each[4]
            # Each event prints up to three lines of its number; only the one with the word of severity is the event.
            kind = re.match(r"(Fatal|Non-fatal), *", message)
            if not kind:
                continue
            fatal = kind[1] == "Fatal"
            self.bad |= fatal
            self.context |= not fatal
            link = re.search(r"Link (\d+)", message)
            yield signal(
                "sxid", number, text, bdf=bdf(each[2]), value=float(each[3]),
                device=f"nvswitch{each[1]}" + (f"/link{int(link[1]):02d}" if link else ""),
                detail={"fatal": fatal, "message": message[kind.end() :][:300]},
            )  # fmt: skip
        if m := _SXID_FM.search(text):
            fatal = m[1] == "fatal"
            self.bad |= fatal
            self.context |= not fatal
            yield signal(
                "sxid", number, text, bdf=bdf(m[4]), value=float(m[2]),
                device=f"nvswitch{m[5] or ''}" + (f"/link{int(m[6]):02d}" if m[6] else ""),
                detail={"fatal": fatal, "reporter": "fabric manager"},
            )  # fmt: skip

    def _mlx5(self, number: int, text: str, host: _Host) -> Iterator[Signal]:
        if m := _MLX_IB.search(text):
            if m[4] == "DOWN":
                host.down[m[2]] = self.context = True
                yield signal("ib_port_down", number, text, bdf=bdf(m[1]), device=m[2], detail={"port": int(m[3])})
            elif m[4] == "ACTIVE":
                host.down.pop(m[2], None)
                yield signal("ib_port_up", number, text, bdf=bdf(m[1]), device=m[2], detail={"port": int(m[3])})
        elif m := _MLX_ETH.search(text):
            kind = "ib_port_down" if m[3] == "down" else "ib_port_up"
            if m[3] == "down":
                host.down[m[2]] = self.context = True
            else:
                host.down.pop(m[2], None)
            yield signal(kind, number, text, bdf=bdf(m[1]), device=m[2], detail={"layer": "Ethernet"})
        elif m := _MLX_MODULE.search(text):
            yield signal(
                "hca_event", number, text, bdf=bdf(m[1]),
                detail={"what": "transceiver: " + m[3].strip()[:100], "module": int(m[2])},
            )  # fmt: skip
        elif m := _MLX_POWER.search(text):
            yield signal("hca_event", number, text, bdf=bdf(m[1]), detail={"what": "insufficient slot power"})
        elif m := _MLX_HEALTH.search(text):
            yield signal("hca_event", number, text, bdf=bdf(m[1]), detail={"what": m[2].strip()[:60]})

    def _pcie(self, number: int, text: str, host: _Host, stamp: Stamp) -> Iterator[Signal]:
        if m := _AER_BUS.search(text):
            severity = m[3].lower()
            detail: dict[str, Any] = {"driver": m[1].rstrip(":"), "type": m[5].strip()}
            if m[6]:
                detail["agent"] = m[6]
            # AER calls it Corrected or Correctable; everything else lost data or the link.
            if severity.startswith("correct"):
                yield signal("pcie_corrected", number, text, bdf=bdf(m[2]), value=1.0, detail=detail)
                return
            if m[4]:
                detail["severity"] = m[4]
            host.uncorrected = True
            self.bad = True
            yield signal("pcie_uncorrected", number, text, bdf=bdf(m[2]), detail=detail)
        elif m := _DPC.search(text):
            self.bad = True
            yield signal("pcie_uncorrected", number, text, bdf=bdf(m[1]), detail={"what": "DPC containment"})
        elif m := _AER_HEAD.search(text):
            self.bad = True
            if host.aer_head is None:
                head = signal("pcie_uncorrected", number, text, bdf=bdf(m[3] or m[1]))
                host.aer_head = self._dated(head, stamp)

    def _edac(self, number: int, text: str, m: re.Match[str]) -> Iterator[Signal]:
        n = int((m[2] or "1")[:9])
        place = _EDAC_PLACE.search(m[4])
        device = (place[1] or place[2] if place else None) or f"MC{m[1]}"
        if m[3] == "UE":
            self.bad = True
            yield signal("memory_ue", number, text, device=device, value=float(n), detail={"n": n})
        elif n:  # "0 CE" is an artefact of firmware
            yield signal("memory_ce", number, text, device=device, value=float(n), detail={"n": n})

    def _mce(self, number: int, text: str, host: _Host) -> Iterator[Signal]:
        if m := _APEI_SEVERITY.search(text):
            if len(host.apei) < 256:
                host.apei[m[1]] = m[2].lower()
        elif m := _APEI_SECTION.search(text):
            severity = host.apei.get(m[1], "")
            corrected = severity in ("corrected", "info")
            section = m[2].strip()
            kind = "memory_" if "memory" in section else "pcie_" if section.startswith("PCIe") else ""
            detail = {"what": "APEI", "severity": severity or None, "section": section[:60]}
            self.bad |= not corrected
            if kind:
                short = kind == "memory_"
                kind += ("ce" if short else "corrected") if corrected else ("ue" if short else "uncorrected")
                yield signal(kind, number, text, value=1.0, detail=detail)
            elif not corrected:
                yield signal("machine_check", number, text, detail=detail)
        elif _MCE_FATAL.search(text):
            self.bad = True
            kind = "memory_ue" if "memory error" in text else "machine_check"
            yield signal(kind, number, text, detail={"what": "machine check"})

    def _software(self, number: int, text: str) -> Iterator[Signal]:
        if m := _HUNG.search(text):
            self.context = True
            yield signal(
                "kernel_hang", number, text,
                detail={"what": "hung task", "process": m[1][:60], "pid": int(m[2][:12]), "seconds": int(m[3][:9])},
            )  # fmt: skip
        elif m := _OOM.search(text):
            self.context = True
            yield signal("oom_host", number, text, detail={"process": m[2][:60], "pid": int(m[1][:12])})
        elif m := _PANIC.search(text):
            self.bad = True
            yield signal("kernel_panic", number, text, detail={"message": m[1][:200]})
        elif m := _CPU_HOT.search(text):
            yield signal("cpu_throttle", number, text, device=m[1])
        elif m := _LOCKUP.search(text):
            self.context = True
            yield signal("kernel_hang", number, text, detail={"what": m[1] or "RCU stall"})

    # ------------------------------------------------------------------------------------------------------ result

    def read(self) -> Reading:
        """Return the reading of the whole log."""
        for name, host in self.hosts.items():
            if host.aer_head is not None and not host.uncorrected:
                # Only the root port spoke: its message names the device, or nothing does.
                self._keep(host.aer_head, Prefix(name))
            if host.down:
                self.bad = True
        recognised = self.kernel_lines > 0 or any(k[0] != "log_starts" for k in self.places)
        reading = Reading(self.tool, recognised=recognised)
        reading.complete = self.whole
        signals: list[Signal] = []
        xids: list[dict[str, Any]] = []
        for place in self.places.values():
            kept = [*place.first, *place.last]
            first = kept[0]
            if place.count > 1:
                last = kept[-1]
                extra = {"count": place.count, "last_line": last.line}
                if "time" in last.detail:
                    extra["last_time"] = last.detail["time"]
                first = replace(
                    first,
                    value=float(place.count) if first.kind in _COUNTED else first.value,
                    detail={**first.detail, **extra},
                )
            if place.count > len(kept) and first.kind not in _COUNTED:
                self.note(
                    f"{place.count} events '{first.kind}' at {first.device or first.bdf or 'one place'}: "
                    f"the first and last {KEEP_EACH} are listed"
                )
            if first.kind in _COUNTED:
                signals.append(first)  # counted, not listed
            else:
                signals += [first, *kept[1:]]
            if first.kind == "xid" and first.value is not None and len(xids) < 1000:
                xids.append(
                    {
                        "xid": int(first.value),
                        "bdf": first.bdf,
                        "host": first.host,
                        "line": first.line,
                        "time": first.detail.get("time"),
                        "count": place.count,
                    }
                )
        signals.sort(key=lambda s: s.line)
        reading.signals = signals
        reading.data = {**self._times(), "xids": xids, "counts": dict(sorted(self.counts.items()))}
        if self.gpus:
            reading.data["gpus"] = self.gpus
        if self.context:
            reading.data["needs_context"] = True
        if self.jumps:
            reading.data["clock_jumps"] = self.jumps
        verdict: Verdict = "pass"
        if self.bad:
            verdict = "fail"
        elif recognised and not self.whole:
            reading.problems.append("a kernel log has no end mark: nothing proves that this one is whole")
        reading.verdict = verdict
        return reading

    def _times(self) -> dict[str, Any]:
        data: dict[str, Any] = {"first_time": None, "last_time": None, "clock": None}
        hosts: dict[str, Any] = {}
        for name, host in self.hosts.items():
            if host.first is None or host.last is None:
                continue
            entry = {
                "first_time": host.first.value,
                "last_time": host.last.value,
                "clock": host.first.clock,
                "first_text": host.first.text,
                "last_text": host.last.text,
                "first_line": host.first_line,
            }
            if data["clock"] is None:
                data.update(entry)
            elif data["clock"] == host.first.clock and None not in (host.first.value, host.last.value):
                # Several hosts: the log covers only what every host's part covers.
                if (host.first.value or 0.0) > (data["first_time"] or 0.0):
                    data.update(first_time=host.first.value, first_text=host.first.text)
                if (host.last.value or 0.0) < (data["last_time"] or 0.0):
                    data.update(last_time=host.last.value, last_text=host.last.text)
            if name is not None:
                hosts[name] = entry
        if hosts:
            data["hosts"] = hosts
        return data
