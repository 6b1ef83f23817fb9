# SPDX-License-Identifier: Apache-2.0
"""What the Xids of a run mean: the table as data, and the rules that turn log lines into verdicts.

`judge_xids` is pure: events in, verdicts out. Nothing is dropped: a line that does not count is reported with the
reason why it does not. Two things it never does: count an event that is older than the run, and let one event excuse
another that is worse (a consequence is only excused by a cause that itself counts against the GPU).

    table = load_table()
    events = events_from_signals(reading.signals, node="dgx05", run="x4/heat0/nccl/dgx01x4-1a2b3c")
    for verdict in judge_xids(events, table, job_start, job_end, history):
        print(verdict.node, verdict.part, verdict.severity, verdict.why, verdict.next_action)
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from burnin import storage
from burnin.errors import ConfigError
from burnin.parsers.reading import Signal

Severity = Literal["fatal", "counted", "app", "info"]

#: From harmless to grave; `max` over it is the severity of several codes that are one event.
ORDER: dict[str, int] = {"info": 0, "app": 1, "counted": 2, "fatal": 3}

#: One uncorrectable memory error prints several of these on one GPU: the error, its detail, the remap, the containment.
MEMORY_CHAIN = frozenset({48, 63, 64, 94, 95, 140, 171, 172})
#: Which code of a chain names the event, first found wins.
_CHAIN_LEADER = (48, 172, 171, 140, 95, 94, 64, 63)

#: Most evidence lines kept in one verdict; `count` stays exact.
KEEP_LINES = 20

#: How far the stamps of one line may lie apart in two probes (s): `dmesg -T` moves with clock corrections.
STAMP_DRIFT_S = 2.0

TABLE = Path(__file__).resolve().parents[2] / "config" / "xid.yaml"


# ------------------------------------------------------------------------------------------------------------- table


@dataclass(frozen=True, slots=True)
class XidEntry:
    """One code of the table; see config/xid.yaml for what each field is for."""

    name: str
    immediate: str
    then: str
    kind: str
    severity: Severity
    next: str | None = None
    unused: bool = False
    sympathetic: bool = False
    repeats: bool = False
    nvlink: bool = False
    by_word: bool = False
    recovery: bool = False


@dataclass(frozen=True, slots=True)
class Recovery:
    """One verdict of Xid 154."""

    name: str
    severity: Severity
    next: str


@dataclass(frozen=True, slots=True)
class XidRules:
    """The numbers of the rules; seconds where the name ends in `_s`."""

    window_slack_s: float
    chain_s: float
    sympathetic_s: float
    repeat_runs: int
    widespread_gpus: int
    repeated_severity: Severity
    repeated_next: str


@dataclass(frozen=True, slots=True)
class XidTable:
    """The whole table."""

    source: str
    as_of: str
    rules: XidRules
    unknown: XidEntry
    recovery: Mapping[int, Recovery]
    actions: Mapping[str, str]
    codes: Mapping[int, XidEntry]

    def entry(self, code: int) -> XidEntry:
        """Return the entry of a code, or `unknown` for a number that is not listed."""
        return self.codes.get(code, self.unknown)

    def next_action(self, entry: XidEntry) -> str:
        """Return what an operator does about an entry, in words."""
        if entry.next:
            return entry.next
        words = [self.actions[entry.immediate]]
        if entry.then not in ("none", "ignore", entry.immediate):
            words.append(self.actions[entry.then])
        return "; then ".join(words)


def _textual_keys(document: Any) -> Any:
    """Return the document with all keys as text: YAML reads `79:` as a number, JSON Schema knows only text."""
    if isinstance(document, Mapping):
        return {str(k): _textual_keys(v) for k, v in document.items()}
    if isinstance(document, list):
        return [_textual_keys(v) for v in document]
    return document


def _merged(base: Any, over: Any) -> Any:
    if isinstance(base, dict) and isinstance(over, dict):
        return {**base, **{k: _merged(base[k], v) if k in base else v for k, v in over.items()}}
    return over


def table_from(document: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> XidTable:
    """Return the table of a parsed xid.yaml with a site's overrides merged over it, key by key.

    Raises ConfigError naming the key if the result does not follow `workflow/schemas/xid.schema.json` or names an
    action that is not explained.
    """
    merged = _merged(_textual_keys(document), _textual_keys(overrides or {}))
    error = next(iter(storage.validator("xid").iter_errors(merged)), None)
    if error is not None:
        key = ".".join(["xid", *(str(p) for p in error.absolute_path)])
        raise ConfigError(key, error.instance, error.message[:200], "correct the key in the Xid table or its overrides")
    codes = {int(code): XidEntry(**entry) for code, entry in merged["codes"].items()}
    unknown = XidEntry(**merged["unknown"])
    for code, entry in [*codes.items(), (0, unknown)]:
        for step in ("immediate", "then"):
            if (action := getattr(entry, step)) not in merged["actions"]:
                key = f"xid.codes.{code}.{step}" if code else f"xid.unknown.{step}"
                raise ConfigError(key, action, "a key of xid.actions", "add the action with its words, or use another")
    return XidTable(
        source=merged["source"],
        as_of=merged["as_of"],
        rules=XidRules(**merged["rules"]),
        unknown=unknown,
        recovery={int(number): Recovery(**entry) for number, entry in merged["recovery"].items()},
        actions=merged["actions"],
        codes=codes,
    )


def load_table(path: Path = TABLE, overrides: Mapping[str, Any] | None = None) -> XidTable:
    """Read the table from a file; see `table_from` for errors."""
    return table_from(storage.parse_yaml(path.read_text(encoding="utf-8")), overrides)


# ------------------------------------------------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class XidEvent:
    """One Xid line. `time` is seconds since the epoch, or None where the line's clock is not known.

    `run` names the run in whose probes it was seen, `source` the file and `line` the line in it (1-based). The GPU is
    whatever is known of `serial`, `bdf` and `gpu` (index on its node); a serial number wins, because a board that moves
    to another slot keeps it.
    """

    node: str
    code: int
    text: str = ""
    gpu: int | None = None
    bdf: str | None = None
    serial: str | None = None
    time: float | None = None
    line: int = 0
    run: str | None = None
    source: str | None = None

    @classmethod
    def of(cls, event: XidEvent | Mapping[str, Any]) -> XidEvent:
        """Return the event of a mapping with these keys (others are ignored); `node` and `code` must be there."""
        if isinstance(event, XidEvent):
            return event
        return cls(**{k: event[k] for k in cls.__dataclass_fields__ if event.get(k) is not None})


def events_from_signals(
    signals: Iterable[Signal],
    *,
    node: str | None = None,
    run: str | None = None,
    source: str | None = None,
    gpus: Mapping[str, Mapping[str, Any]] | None = None,
    boot_time: float | None = None,
    utc_offset_s: float | None = None,
) -> list[XidEvent]:
    """Return the events of a reading's `xid` signals, in file order.

    `node` is used where a line names no host. `gpus` maps a PCI address (dddd:bb:dd) to {"index", "serial"} as
    nvidia-smi printed them. `boot_time` (seconds since the epoch) and `utc_offset_s` (the node's zone, seconds east of
    UTC) turn stamps into times; a stamp that they do not reach gives no time rather than a wrong one. A signal whose
    host is neither named nor given is an error of the caller (ValueError), not something to guess.
    """
    out: list[XidEvent] = []
    for signal in signals:
        if signal.kind != "xid" or signal.value is None:
            continue
        host = signal.host or node
        if host is None:
            raise ValueError(f"line {signal.line} names no host and no node was given")
        known = (gpus or {}).get(signal.bdf or "", {})
        out.append(
            XidEvent(
                node=host,
                code=int(signal.value),
                text=signal.text,
                gpu=signal.gpu if signal.gpu is not None else known.get("index"),
                bdf=signal.bdf,
                serial=known.get("serial") or signal.detail.get("serial"),
                time=epoch_time(signal.detail, boot_time, utc_offset_s),
                line=signal.line,
                run=run,
                source=source,
            )
        )
    return out


def epoch_time(detail: Mapping[str, Any], boot_time: float | None, utc_offset_s: float | None) -> float | None:
    """Return the time of a kernel line (seconds since the epoch) from what its parser says of the stamp, or None."""
    time, uptime = detail.get("time"), detail.get("uptime")
    clock = detail.get("clock", "utc")
    if clock == "boot":
        uptime = time
    if uptime is not None and boot_time is not None:
        return boot_time + float(uptime)
    if time is not None and clock == "utc":
        return float(time)
    if time is not None and clock == "local" and utc_offset_s is not None:
        return float(time) - utc_offset_s
    return None


@dataclass(frozen=True, slots=True)
class XidVerdict:
    """What one Xid event (or one chain that is one event) means.

    `codes`: all codes of the event, `code` the one that names it. `part`: `gpu5`, else the PCI address, else `gpu?`.
    `count`: how often the naming code was printed. `evidence`: (source, line) of the first lines. `ends`: the two
    suspects of a link, empty otherwise. `counts`: False where the event is a consequence, a recovery or not in this
    run. `certain`: False where it is not known whether the event is new in this run. `repeated`: the same GPU showed
    it in other runs too. `link`: NVLink number if the line has one. `caused_by`: the code it follows.
    """

    node: str
    part: str
    code: int
    codes: tuple[int, ...]
    name: str
    severity: Severity
    kind: str
    why: str
    next_action: str
    nvidia_action: str
    count: int
    gpu: int | None = None
    bdf: str | None = None
    serial: str | None = None
    time: float | None = None
    text: str = ""
    evidence: tuple[tuple[str | None, int], ...] = ()
    ends: tuple[str, ...] = ()
    link: int | None = None
    counts: bool = True
    certain: bool = True
    repeated: bool = False
    caused_by: int | None = None
    runs: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


# --------------------------------------------------------------------------------------------------- reading of lines

_CAUSED = re.compile(r"caused by previous Xid (\d+)", re.IGNORECASE)
_WORD = re.compile(r"\b(Non-?fatal|Fatal)\b", re.IGNORECASE)
_LINK = re.compile(r"\blink\s+(-?\d+)", re.IGNORECASE)
_RECOVERY = re.compile(r"changed from\s+0x([0-9a-f]+)\s*\(([^)]*)\)\s+to\s+0x([0-9a-f]+)\s*\(([^)]*)\)", re.IGNORECASE)
_RECOVERY_NOW = re.compile(
    r"recovery action[^:(]*[:(]\s*(?:0x([0-9a-f]+))?\s*\(?([A-Za-z][A-Za-z0-9 ]*)", re.IGNORECASE
)
_NVRM = re.compile(r"NVRM:|Xid")
_UPTIME = re.compile(r"\[\s*(\d{1,10}\.\d{4,6})\]")
_GPC_TPC = re.compile(r"GPC\s*(\d+),?\s*(?:TPC\s*(\d+))?", re.IGNORECASE)


def recovery_action(text: str, table: XidTable) -> tuple[int | None, str]:
    """Return (number, the driver's words) of the verdict that an Xid 154 line changes *to*; (None, "") if unreadable.

    `... changed from 0x0 (None) to 0x2 (Node Reboot Required)` gives (2, "Node Reboot Required"). Drivers word the
    same number differently ("OS Reboot"), so the number decides and the words are only a fallback.
    """
    if match := _RECOVERY.search(text):
        return int(match[3], 16), match[4].strip()
    if match := _RECOVERY_NOW.search(text):
        words = match[2].strip()
        if match[1]:
            return int(match[1], 16), words
        for number in sorted(table.recovery, key=lambda n: -len(table.recovery[n].name)):
            if table.recovery[number].name.lower() in words.lower():
                return number, words
    return None, ""


def _location(text: str) -> str | None:
    """Return "GPC 2 TPC 1" where the line names the unit that faulted, else None."""
    match = _GPC_TPC.search(text)
    if not match:
        return None
    return f"GPC {match[1]}" + (f" TPC {match[2]}" if match[2] is not None else "")


# ------------------------------------------------------------------------------------------------------------ judging


class _Identity:
    """Which GPU an event is about, using everything that any event says about serials and addresses."""

    def __init__(self, events: Iterable[XidEvent]) -> None:
        self.serial: dict[tuple[str, str], str | None] = {}
        self.address: dict[tuple[str, int], str | None] = {}
        self.index: dict[tuple[str, str], int] = {}
        for event in events:
            if event.bdf is not None and event.serial is not None:
                key = (event.node, event.bdf)
                # An address that carried two serials (a swapped board) identifies neither.
                self.serial[key] = event.serial if self.serial.get(key, event.serial) == event.serial else None
            if event.bdf is not None and event.gpu is not None:
                slot = (event.node, event.gpu)
                self.address[slot] = event.bdf if self.address.get(slot, event.bdf) == event.bdf else None
                self.index.setdefault((event.node, event.bdf), event.gpu)

    def of(self, event: XidEvent) -> str:
        """Return a name of the GPU that is equal for all its events."""
        bdf = event.bdf
        if bdf is None and event.gpu is not None:
            bdf = self.address.get((event.node, event.gpu))
        serial = event.serial or (self.serial.get((event.node, bdf)) if bdf is not None else None)
        if serial is not None:
            return f"serial {serial}"
        if bdf is not None:
            return f"{event.node} {bdf}"
        return f"{event.node} gpu{event.gpu}" if event.gpu is not None else f"{event.node} gpu?"

    def index_of(self, event: XidEvent) -> int | None:
        """Return the GPU's index on its node where anything says it."""
        if event.gpu is not None or event.bdf is None:
            return event.gpu
        return self.index.get((event.node, event.bdf))


def _message(event: XidEvent) -> tuple[int, str]:
    """Return what two lines of one event have in common: the code and the text without stamps before the message."""
    start = _NVRM.search(event.text)
    return event.code, event.text[start.start() :] if start else event.text


def _uptime(event: XidEvent) -> float | None:
    match = _UPTIME.search(event.text)
    return float(match[1]) if match else None


def _same_moment(a: XidEvent, b: XidEvent) -> bool:
    """Say whether two equal messages may be one line seen twice; what is not known does not tell them apart.

    Seconds since boot never change. `dmesg -T` computes its stamps anew each time, so they move when the clock is set.
    """
    one, two = _uptime(a), _uptime(b)
    if one is not None and two is not None:
        return abs(one - two) < 1e-3
    return a.time is None or b.time is None or abs(a.time - b.time) <= STAMP_DRIFT_S


def _distinct(events: Sequence[XidEvent], identity: _Identity) -> list[XidEvent]:
    """Return the events without those that several probes of the same kernel log repeat.

    A probe prints the whole ring buffer, so one line comes back in each; equal lines *within* one file are two events.
    """
    kept: dict[tuple[object, ...], list[XidEvent]] = defaultdict(list)
    place: Counter[tuple[object, ...]] = Counter()  # how far each file has come in the kept events of a message
    out = []
    for event in events:
        key = (identity.of(event), _message(event))
        known, here = kept[key], (*key, event.source)
        match = next((i for i in range(place[here], len(known)) if _same_moment(known[i], event)), None)
        if match is None:
            known.append(event)
            out.append(event)
            match = len(known) - 1
        place[here] = match + 1
    return out


def _new_in_run(
    events: Sequence[XidEvent],
    window: tuple[float | None, float | None],
    listed_before: Sequence[XidEvent] | None,
    identity: _Identity,
) -> list[tuple[XidEvent, bool]]:
    """Return the events that are new in the run, each with whether that is certain.

    A time decides where there is one; otherwise the difference to what the probe before the run had listed.
    """
    start, end = window
    old: dict[tuple[object, ...], deque[XidEvent]] = defaultdict(deque)
    for event in _distinct(listed_before or [], identity):
        old[identity.of(event), _message(event)].append(event)
    out: list[tuple[XidEvent, bool]] = []
    for event in events:
        if event.time is not None and (start is not None or end is not None):
            if (start is None or event.time >= start) and (end is None or event.time <= end):
                out.append((event, True))
            continue
        listed = old[identity.of(event), _message(event)]
        match = next((other for other in listed if _same_moment(other, event)), None)
        if match is not None:
            listed.remove(match)
            continue
        out.append((event, listed_before is not None))
    return out


def _ordered(events: Sequence[tuple[XidEvent, bool]]) -> list[tuple[XidEvent, bool]]:
    """Return the events of one GPU in time order; where a time is missing the order of the log is kept."""
    if all(event.time is not None for event, _ in events):
        return sorted(events, key=lambda pair: pair[0].time or 0.0)
    return list(events)


def _when(time: float | None) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if time is not None else "time unknown"


@dataclass(slots=True)
class _Item:
    """One event in the making: its lines, and what the rules said so far."""

    lines: list[tuple[XidEvent, bool]]
    entry: XidEntry
    severity: Severity
    next_action: str
    why: list[str] = field(default_factory=list)
    excused: bool = False
    caused_by: int | None = None
    repeated: bool = False
    runs: tuple[str, ...] = ()
    recovery: Recovery | None = None
    verdicts_of_driver: list[XidEvent] = field(default_factory=list)

    @property
    def first(self) -> XidEvent:
        return self.lines[0][0]

    @property
    def last(self) -> XidEvent:
        return self.lines[-1][0]

    @property
    def codes(self) -> tuple[int, ...]:
        return tuple(sorted({event.code for event, _ in self.lines} | {e.code for e in self.verdicts_of_driver}))

    @property
    def code(self) -> int:
        present = {event.code for event, _ in self.lines}
        return (
            next((c for c in _CHAIN_LEADER if c in present), self.first.code) if len(present) > 1 else self.first.code
        )

    @property
    def link(self) -> int | None:
        return _link(self.first.text) if self.entry.nvlink else None


def _link(text: str) -> int | None:
    match = _LINK.search(text)
    return int(match[1]) if match else None


def _worse(a: Severity, b: Severity) -> Severity:
    return a if ORDER[a] >= ORDER[b] else b


def _item(event: XidEvent, certain: bool, table: XidTable) -> _Item:
    """Return the item of one line taken alone: the table, the word in the line, the driver's own verdict."""
    entry = table.entry(event.code)
    item = _Item([(event, certain)], entry, entry.severity, table.next_action(entry))
    if entry.by_word:
        if (word := _WORD.search(event.text)) is None:
            item.why.append("the line says neither Fatal nor Nonfatal, so the table's severity stands")
        elif word[1].lower() == "fatal":
            item.severity = "fatal"
            item.why.append("the driver says Fatal")
        else:
            item.severity = "counted"
            item.why.append("the driver says Nonfatal")
    elif entry.recovery:
        number, words = recovery_action(event.text, table)
        known = table.recovery.get(number) if number is not None else None
        if known is None:
            item.severity = "counted"
            item.why.append(f"the driver's verdict could not be read ({words or 'no value'})")
        else:
            item.severity, item.next_action, item.recovery = known.severity, known.next, known
            item.why.append(
                "the driver withdrew its request: a recovery" if number == 0 else f"the driver itself asks for: {words}"
            )
    elif event.code not in table.codes:
        item.why.append("the number is not in the table, so it is reported and counted, not dropped")
    elif entry.unused:
        item.why.append("NVIDIA lists the number as unused, so nobody can say what it means")
    return item


def _near(earlier: XidEvent, later: XidEvent, seconds: float) -> bool:
    """Say whether two events may belong together; an unknown time does not separate them."""
    if earlier.time is None or later.time is None:
        return True
    return later.time - earlier.time <= seconds


def _judge_gpu(pairs: Sequence[tuple[XidEvent, bool]], table: XidTable) -> list[_Item]:
    """Return the items of one GPU in order of their first line: chains joined, consequences marked, repeats merged."""
    items: list[_Item] = []
    chain: _Item | None = None  # the last memory error
    causes: dict[tuple[int, str], _Item] = {}  # the latest of each kind, so that a flood costs no more than its lines
    for event, certain in pairs:
        item = _item(event, certain, table)
        if caused := _CAUSED.search(event.text):
            item.excused, item.caused_by = True, int(caused[1])
            item.why = [f"the driver says that Xid {caused[1]} caused it"]
        elif event.code in MEMORY_CHAIN and chain is not None and _near(chain.last, event, table.rules.chain_s):
            chain.lines.append((event, certain))
            chain.severity = _worse(chain.severity, item.severity)
            # The next step of the gravest code: a failed remap asks for more than the error that led to it.
            leader = table.entry(64 if 64 in chain.codes else chain.code)
            chain.entry, chain.next_action = table.entry(chain.code), table.next_action(leader)
            continue
        elif item.entry.sympathetic and (cause := _cause(causes, item, table)) is not None:
            item.excused, item.caused_by = True, cause.code
            item.why = [f"a consequence of Xid {cause.code}, which came first on this GPU"]
        if item.excused:
            item.severity = "info"
            item.next_action = f"act on Xid {item.caused_by}"
        else:
            if event.code in MEMORY_CHAIN:
                chain = item
            if not item.entry.recovery:
                kind = (event.code, item.severity)
                causes.pop(kind, None)  # back to the end: the latest comes last
                causes[kind] = item
        items.append(item)
    return _merged_items(items)


def _cause(causes: dict[tuple[int, str], _Item], item: _Item, table: XidTable) -> _Item | None:
    """Return what a sympathetic code follows: an event at least as grave as itself would be alone."""
    for other in reversed(causes.values()):
        if other.first.code == item.first.code or ORDER[other.severity] < ORDER[item.severity]:
            continue
        # Cleanup (45) can trail its cause by minutes and is harmless; a memory error must be close to be excused.
        if item.severity == "info" or _near(other.last, item.first, table.rules.sympathetic_s):
            return other
    return None


def _merged_items(items: Iterable[_Item]) -> list[_Item]:
    """Merge items that say the same thing of the same GPU, so that ten thousand lines are one verdict."""
    kept: dict[tuple[object, ...], _Item] = {}
    for item in items:
        key = (item.codes, item.severity, item.excused, item.caused_by, item.link, id(item.recovery))
        if key in kept:
            kept[key].lines.extend(item.lines)
        else:
            kept[key] = item
    return list(kept.values())


def _judge_repeats(item: _Item, table: XidTable, past: Sequence[XidEvent], gpus_with_it: int) -> None:
    """Turn a code that is the application's into the GPU's if the same GPU showed it in other runs too."""
    if not item.entry.repeats or item.excused:
        return
    rules = table.rules
    here = {event.run or "(this run)" for event, _ in item.lines}
    places = {place for event, _ in item.lines if (place := _location(event.text))}
    other = [e for e in past if e.run is not None and e.run not in here]
    same = [e for e in other if not places or (place := _location(e.text)) is None or place in places]
    runs = here | {e.run for e in same if e.run is not None}
    item.runs = tuple(sorted(runs))
    if len(runs) < rules.repeat_runs:
        item.why.append(
            "other runs showed it on this GPU, but on another unit of it, which points at the program"
            if other and not same
            else "the application's, until the same GPU shows it in other runs"
        )
    elif rules.widespread_gpus and gpus_with_it >= rules.widespread_gpus:
        item.why.append(f"repeated, but {gpus_with_it} GPUs show it in this run, which points at the program")
    else:
        item.repeated = True
        item.severity = _worse(item.severity, rules.repeated_severity)
        item.next_action = rules.repeated_next
        item.why.append(f"the same GPU showed it in {len(runs)} different runs, so it is the GPU's")


def _apply_recovery(items: Sequence[_Item], table: XidTable) -> list[_Item]:
    """Fold the driver's own verdicts (154) into the event that they speak about; without one they stand alone."""
    out: list[_Item] = []
    for place, item in enumerate(items):
        if not item.entry.recovery or item.excused or item.recovery is None or item.severity == "info":
            out.append(item)
            continue
        others = [o for o in items[:place] if not o.entry.recovery and not o.excused and o.severity != "info"]
        target = others[-1] if others else None
        if target is None:
            later = [o for o in items[place + 1 :] if not o.entry.recovery and not o.excused and o.severity != "info"]
            target = later[0] if later and _near(item.first, later[0].first, table.rules.chain_s) else None
        if target is None:
            item.why.append("no other Xid of this GPU explains it")
            out.append(item)
            continue
        target.severity = _worse(target.severity, item.severity)
        target.why.extend(item.why)
        target.verdicts_of_driver.extend(event for event, _ in item.lines)
        # Xid 154 beats the table: its step comes first, what the code itself asks for stays beside it.
        target.next_action = f"{item.next_action} (the driver's own verdict, Xid 154); {target.next_action}"
    return out


_BECAUSE: dict[str, str] = {
    "fatal": "zero tolerance",
    "counted": "counted against this GPU",
    "app": "the application's, not the GPU's",
    "info": "for the record",
}


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _verdict(item: _Item, table: XidTable, identity: _Identity) -> XidVerdict:
    first, code = item.first, item.code
    index = identity.index_of(first)
    part = f"gpu{index}" if index is not None else (first.bdf or "gpu?")
    lines = [event for event, _ in item.lines] + item.verdicts_of_driver
    count = sum(1 for event, _ in item.lines if event.code == code)
    certain = any(certain for _, certain in item.lines)
    link = item.link
    ends: tuple[str, ...] = ()
    if item.entry.nvlink:
        at = f" link {link}" if link is not None and link >= 0 else ""
        ends = (f"{first.node} {part}{at}", f"the GPU or NVSwitch at the other end of{at or ' that link'}")
    shown = "+".join(str(c) for c in item.codes)
    because = "; ".join([*item.why, _BECAUSE[item.severity]])
    if ends:
        because += f"; suspects are both ends of the link: {ends[0]} and {ends[1]}"
    if not certain:
        because += "; whether it is older than the run is not known (no time in the line, no probe before the run)"
    immediate, then = table.actions[item.entry.immediate], table.actions[item.entry.then]
    return XidVerdict(
        node=first.node,
        part=part,
        code=code,
        codes=item.codes,
        name=item.entry.name if code in table.codes else f"{item.entry.name} {code}",
        severity=item.severity,
        kind=item.entry.kind,
        why=f"Xid {shown} ({item.entry.name}) on {first.node} {part}, {_times(count)}, first {_when(first.time)}: "
        f"{because}.",
        next_action=item.next_action,
        nvidia_action=immediate if item.entry.then in ("none", item.entry.immediate) else f"{immediate}; then {then}",
        count=count,
        gpu=index,
        bdf=first.bdf,
        serial=first.serial,
        time=first.time,
        text=first.text,
        evidence=tuple((event.source, event.line) for event in lines[:KEEP_LINES]),
        ends=ends,
        link=link,
        counts=item.severity in ("counted", "fatal") and not item.excused,
        certain=certain,
        repeated=item.repeated,
        caused_by=item.caused_by,
        runs=item.runs or tuple(sorted({event.run for event in lines if event.run is not None})),
    )


def judge_xids(
    events: Iterable[XidEvent | Mapping[str, Any]],
    table: XidTable,
    job_start: float | None,
    job_end: float | None,
    history: Iterable[XidEvent | Mapping[str, Any]] = (),
    before: Iterable[XidEvent | Mapping[str, Any]] | None = None,
) -> list[XidVerdict]:
    """Judge the Xids of one run; verdicts in order of time.

    `events`: what the run's probes show (the whole ring buffer may come again and again). `job_start`, `job_end`:
    seconds since the epoch, None = open. `history`: events that other runs of the campaign have counted, for codes
    that only mean hardware when they repeat. `before`: what the probe before the run showed; lines without a time are
    new if they are not in it. Without it (None) such a line is judged but `certain` is False.

    Rules, in order: only events new in the run; "caused by previous Xid" never counts; 45, 94, 95, 159 are consequences
    when an event at least as grave came first on that GPU; 48, 63, 64, 94, 95 close together are one event; Fatal or
    Nonfatal decides for NVLink 5; 13 and 31 turn from the application's to the GPU's when the same GPU repeats them in
    other runs; 154 raises its GPU's event to the driver's own verdict. Sources: NVIDIA's Xid catalogue and workflows.
    """
    now = [XidEvent.of(e) for e in events]
    earlier = [XidEvent.of(e) for e in history]
    listed = [XidEvent.of(e) for e in before] if before is not None else None
    identity = _Identity([*earlier, *(listed or []), *now])
    slack = table.rules.window_slack_s
    window = (job_start - slack if job_start is not None else None, job_end + slack if job_end is not None else None)
    fresh = _new_in_run(_distinct(now, identity), window, listed, identity)

    by_gpu: dict[str, list[tuple[XidEvent, bool]]] = defaultdict(list)
    spread: dict[int, set[str]] = defaultdict(set)
    for event, certain in fresh:
        gpu = identity.of(event)
        by_gpu[gpu].append((event, certain))
        spread[event.code].add(gpu)
    past: dict[tuple[str, int], list[XidEvent]] = defaultdict(list)
    for event in earlier:
        past[identity.of(event), event.code].append(event)

    verdicts: list[XidVerdict] = []
    for gpu, pairs in by_gpu.items():
        items = _judge_gpu(_ordered(pairs), table)
        for item in items:
            _judge_repeats(item, table, past[gpu, item.first.code], len(spread[item.first.code]))
        verdicts.extend(_verdict(item, table, identity) for item in _apply_recovery(items, table))
    # First by time, not by gravity or number: the first error is the suspect. Unknown times come last, in log order.
    return sorted(verdicts, key=lambda v: (v.time is None, v.time or 0.0))
