# SPDX-License-Identifier: Apache-2.0
"""nvidia-smi: `-q` as text and as XML (`-x`), any `-d` selection, drivers 450 to 595; `-L`; the ways to say GPU lost.

Names changed over the years (throttle reasons to event reasons, temperatures to T.Limit headroom, reset status to
recovery action); a reader goes by the names that stand in the text, never by the driver's version. Text and XML end in
the same facts (`FACTS`).

Verdict:
- `fail`: a GPU is lost or cannot be read because it must be reset; recovery action other than None; reset required;
  HW slowdown, HW thermal slowdown or power brake active; headroom (T.Limit) at or below the printed slowdown limit, or
  temperature at or above it; row remapping failed or pending; page retirement pending; SRAM threshold exceeded;
  unrepairable memory; the driver cannot be reached.
- Counters (ECC, remapped rows, replays) never decide: the volatile ones count since the driver was loaded and the
  aggregate ones since the board was made, so only their difference over a burn-in says something. Each uncorrectable
  counter above 0 is a signal with its value. SW power cap and SW thermal slowdown do not decide either (the first is
  normal under load); the second is a signal.
- `unknown`: fewer GPU blocks than "Attached GPUs", a block without what its neighbours have, a value that is N/A where
  a neighbour's is not, an unreadable word, ECC switched off, or nothing to judge in the selection.
- `pass`: everything printed was judged good on every attached GPU.

Completion. XML: the root element closed. Text has no end mark: it is complete if the number of GPU blocks is that of
"Attached GPUs", all blocks have the same headings and the last one reaches the last heading of the others (of a single
GPU: reaches Processes); or if the caller knows that it is whole.

data: `driver`, `cuda`, `timestamp`, `attached`, `runs` (texts in the file, the last is described), `gpus`: [{"index",
"bdf", "host", "uuid", "serial", "product", "minor", "module_id", "vbios", "line", "temperature_c", "t_limit_c"
(headroom in C, smaller is hotter), "t_limit_slowdown_c", "temperature_slowdown_c", "memory_temperature_c",
"power_w", "power_limit_w", "throttle": [active reasons], "ecc": {"volatile": {name: n|null}, "aggregate": {…}},
"ecc_mode", "row_remap":
{"correctable", "uncorrectable", "pending", "failed"}, "recovery_action", "persistence", "mig", "link": {…},
"fabric_state", "fabric_status", "memory_total_mib", "memory_used_mib", "processes": [{"pid", "name", "used_mib"}],
"lost": text}]; `devices` of `-L`. Numbers that could not be read are null, never 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar
from xml.parsers import expat

from burnin.parsers.common import NUMBER, Prefix, bdf, number, signal
from burnin.parsers.hosted import MOST_HOSTS, HostedParser, worst
from burnin.parsers.reading import Reading, Signal, Verdict

#: Most leaves kept of one GPU's block, and most GPUs of one text.
MOST_LEAVES = 4000
MOST_GPUS = 256
#: Most characters of one value.
VALUE_LIMIT = 500

#: Fact -> the paths it has had: text (lower case, `/` between levels) and XML.
FACTS: dict[str, tuple[str, ...]] = {
    "product": ("product name", "product_name"),
    "serial": ("serial number", "serial"),
    "uuid": ("gpu uuid", "uuid"),
    "minor": ("minor number", "minor_number"),
    "module_id": ("module id", "module_id", "gpu_module_id"),
    "vbios": ("vbios version", "vbios_version"),
    "persistence": ("persistence mode", "persistence_mode"),
    "mig": ("mig mode/current", "mig mode", "mig_mode/current_mig"),
    "temperature_c": ("temperature/gpu current temp", "temperature/gpu_temp"),
    "t_limit_c": ("temperature/gpu t.limit temp", "temperature/gpu_temp_tlimit"),
    "t_limit_slowdown_c": (
        "temperature/gpu slowdown t.limit temp",
        "temperature/gpu_temp_slow_tlimit_threshold",
    ),
    "t_limit_shutdown_c": (
        "temperature/gpu shutdown t.limit temp",
        "temperature/gpu_temp_max_tlimit_threshold",
    ),
    "temperature_slowdown_c": ("temperature/gpu slowdown temp", "temperature/gpu_temp_slow_threshold"),
    "temperature_shutdown_c": ("temperature/gpu shutdown temp", "temperature/gpu_temp_max_threshold"),
    "memory_temperature_c": ("temperature/memory current temp", "temperature/memory_temp"),
    "power_w": (
        "gpu power readings/instantaneous power draw",
        "gpu power readings/power draw",
        "gpu power readings/average power draw",
        "power readings/power draw",
        "gpu_power_readings/instant_power_draw",
        "gpu_power_readings/power_draw",
        "gpu_power_readings/average_power_draw",
        "power_readings/power_draw",
    ),
    "power_limit_w": (
        "gpu power readings/current power limit",
        "power readings/enforced power limit",
        "power readings/power limit",
        "gpu_power_readings/current_power_limit",
        "power_readings/enforced_power_limit",
        "power_readings/power_limit",
    ),
    "ecc_mode": ("ecc mode/current", "ecc mode", "ecc_mode/current_ecc"),
    "remap_correctable": ("remapped rows/correctable error", "remapped_rows/remapped_row_corr"),
    "remap_uncorrectable": ("remapped rows/uncorrectable error", "remapped_rows/remapped_row_unc"),
    "remap_pending": ("remapped rows/pending", "remapped_rows/remapped_row_pending"),
    "remap_failed": ("remapped rows/remapping failure occurred", "remapped_rows/remapped_row_failure"),
    "pages_double_bit": ("retired pages/double bit ecc", "retired_pages/double_bit_retirement/retired_count"),
    "pages_pending": (
        "retired pages/pending page blacklist",
        "retired pages/pending",
        "retired_pages/pending_blacklist",
        "retired_pages/pending_retirement",
    ),
    "recovery_action": ("gpu recovery action", "gpu_recovery_action"),
    "reset_required": ("gpu reset status/reset required", "gpu_reset_status/reset_required"),
    "drain_reset": (
        "gpu reset status/drain and reset recommended",
        "gpu_reset_status/drain_and_reset_recommended",
    ),
    "width_max": ("pci/gpu link info/link width/max", "pci/pci_gpu_link_info/link_widths/max_link_width"),
    "width": ("pci/gpu link info/link width/current", "pci/pci_gpu_link_info/link_widths/current_link_width"),
    "generation_max": (
        "pci/gpu link info/pcie generation/max",
        "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
    ),
    "generation": (
        "pci/gpu link info/pcie generation/current",
        "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
    ),
    "replays": ("pci/replays since reset", "pci/replay_counter"),
    "fabric_state": ("fabric/state",),
    "fabric_status": ("fabric/status",),
    "memory_total_mib": ("fb memory usage/total", "fb_memory_usage/total"),
    "memory_used_mib": ("fb memory usage/used", "fb_memory_usage/used"),
    "clock_sm_mhz": ("clocks/sm", "clocks/sm_clock"),
    "clock_sm_max_mhz": ("max clocks/sm", "max_clocks/sm_clock"),
}
_FACT_OF = {path: (fact, rank) for fact, paths in FACTS.items() for rank, path in enumerate(paths)}
#: Facts that are numbers with a unit.
_NUMERIC = frozenset(
    f for f in FACTS if f.endswith(("_c", "_w", "_mib", "_mhz"))
) | {"remap_correctable", "remap_uncorrectable", "pages_double_bit", "width", "width_max", "generation",
     "generation_max", "replays"}  # fmt: skip
#: Facts whose value must be Yes or No, and the kind of signal of a Yes.
_FLAGS: dict[str, tuple[str, str]] = {
    "remap_pending": ("row_remap_pending", "row remapping"),
    "remap_failed": ("row_remap_failed", "row remapping"),
    "pages_pending": ("row_remap_pending", "page retirement"),
    "reset_required": ("gpu_requires_reset", "reset required"),
    "drain_reset": ("gpu_requires_reset", "drain and reset recommended"),
}
#: Numbers that decide: if one GPU has them, all must.
_JUDGED = ("temperature_c", "t_limit_c", "t_limit_slowdown_c", "temperature_slowdown_c")
#: Throttle reason -> does it decide.
_REASONS = {
    "hw slowdown": True,
    "hw thermal slowdown": True,
    "hw power brake slowdown": True,
    "sw thermal slowdown": False,
}

_SICK = re.compile(r"(?i)GPU requires reset|GPU is lost|Unknown Error|ERR!")
_DENIED = re.compile(r"(?i)insufficient permissions?|no permission")
_BLANK = re.compile(
    r"(?i)\[?(?:N/A|Not Supported|Unknown|None)\]?$|\[?Requested functionality has been deprecated\]?$|$"
)
_VALUE = re.compile(rf"({NUMBER})\s*(?:C|W|MiB|MHz|x|%|KB/s|mV|bank\(s\))?$")
_GPU_HEAD = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_LEAF = re.compile(r"(\s*)(\S.*?)\s+:(?: (.*)|\s*)$")
_LOST = re.compile(
    r"(?i)unable to (?:determine|detect) the device handle for gpu\s*"
    r"((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-9a-f])?):\s*(.*)"
)
_LISTED = re.compile(r"GPU (\d+): (.*?) \(UUID: (GPU-[0-9a-fA-F-]+)\)\s*$")
_DRIVER_DOWN = re.compile(
    r"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver|No devices were found|"
    r"Failed to initialize NVML: (?!Driver/library)"
)
_MISMATCH = re.compile(r"Failed to initialize NVML: Driver/library version mismatch")
_TABLE = re.compile(r"\| NVIDIA-SMI\s+\S+")
_TABLE_ROW = re.compile(r"\|\s+(\d+)\s+\S.*\|\s+([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9])\s")
_NO_HOST_CHANGE = ("processes",)


def _worse(value: str) -> int:
    """Return how much a word of a sick GPU says, 0 for the most."""
    low = value.lower()
    return 0 if "lost" in low else 1 if "reset" in low else 2


def measure(text: str | None) -> float | None:
    """Return the number of a value with its unit (`62 C`, `16x`, `81559 MiB`), or None if it is not one."""
    if text is None:
        return None
    m = _VALUE.match(text.strip())
    return number(m[1]) if m else None


@dataclass(slots=True)
class _Gpu:
    """One GPU's block as it is read."""

    index: int | None
    bdf: str | None
    line: int
    facts: dict[str, tuple[str, int, int]] = field(default_factory=dict)  # fact -> value, line, rank of its path
    reasons: dict[str, tuple[str, int]] = field(default_factory=dict)
    ecc: dict[str, dict[str, tuple[str, int]]] = field(default_factory=dict)
    headings: list[str] = field(default_factory=list)
    sick: tuple[str, int, str] | None = None  # value, line, path
    denied: tuple[int, str] | None = None
    other_flags: list[tuple[str, str, int]] = field(default_factory=list)
    processes: list[dict[str, Any]] = field(default_factory=list)
    leaves: int = 0
    outside: int = 0  # leaves but for those of processes, of which every GPU has its own number
    partial: bool = False
    raw: dict[int, str] = field(default_factory=dict)  # line -> its text, of lines that may become evidence


@dataclass(slots=True)
class _Text:
    """One output of nvidia-smi of one host."""

    line: int = 0
    head: dict[str, str] = field(default_factory=dict)
    attached: int | None = None
    attached_line: int = 0
    gpus: list[_Gpu] = field(default_factory=list)
    path: list[str] = field(default_factory=list)
    xml: _Xml | None = None
    xml_closed: bool = False
    listed: list[dict[str, Any]] = field(default_factory=list)
    lost: list[tuple[str | None, str, int, str]] = field(default_factory=list)  # address, why, line, its text
    table_bad: bool = False
    down: tuple[str, int] | None = None
    log: bool = False
    table: int = 0
    last_line: int = 0


class Parser(HostedParser):
    """Streaming reader of nvidia-smi. Options: `whole`, `host`."""

    tool: ClassVar[str] = "nvidia-smi"
    program: ClassVar[str] = "nvidia-smi"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.texts: dict[str | None, _Text] = {}
        self.done: list[tuple[str | None, dict[str, Any], Verdict, bool]] = []
        self.runs = 0
        self.wrapped: _Text | None = None

    # ------------------------------------------------------------------------------------------------------ lines

    def line(self, number: int, body: str, prefix: Prefix) -> list[Signal]:
        """Take one line without host prefix."""
        name = prefix.host
        text = self.texts.get(name)
        if text is None:
            if len(self.texts) >= MOST_HOSTS:
                name = None
            text = self.texts.setdefault(name, _Text())
        stripped = body.strip()
        if not stripped:
            return []
        text.last_line = number
        if text.xml is not None and not text.xml_closed:
            text.xml.feed(number, body + "\n")
            self._xml_state(number, text)
            return []
        if stripped.startswith(("<?xml", "<nvidia_smi_log")):
            text = self._next_run(name, text) if text.xml is not None or text.log else text
            text.line, text.log, text.xml = number, True, _Xml(text)
            text.xml.feed(number, body.lstrip() + "\n")
            self._xml_state(number, text)
            return []
        if "NVSMI LOG" in stripped and stripped.startswith("="):
            text = self._next_run(name, text) if text.log else text
            text.line, text.log = number, True
            return []
        return self._text_line(number, body, stripped, name, text)

    def _xml_state(self, number: int, text: _Text) -> None:
        xml = text.xml
        if xml is None:
            return
        if xml.error:
            self.note(f"line {number}: the XML is damaged ({xml.error})", damage=True)
            text.xml_closed = True  # the rest is read as text, where the next document may begin
            xml.failed = True
        elif xml.closed:
            text.xml_closed = True

    def _next_run(self, name: str | None, text: _Text) -> _Text:
        self._close(name, text)
        self.texts[name] = fresh = _Text()
        return fresh

    def _text_line(self, number: int, body: str, stripped: str, name: str | None, text: _Text) -> list[Signal]:
        if self.wrapped is text and text.lost:
            # A long message of a lost GPU may be wrapped onto the next line.
            self.wrapped = None
            where, what, line, raw = text.lost[-1]
            if not _LEAF.match(body) and not stripped.startswith("GPU "):
                text.lost[-1] = (where, (what + " " + stripped)[:VALUE_LIMIT], line, raw + " " + stripped)
                return []
        if m := _LOST.match(stripped):
            if len(text.lost) >= MOST_GPUS:
                return []
            text.lost.append((bdf(m[1]), m[2].strip()[:VALUE_LIMIT], number, stripped))
            text.log = True
            self.wrapped = text if "this GPU" not in m[2] and "Error" not in m[2] else None
            return [self._lost_signal(name, text.lost[-1])]
        if m := _DRIVER_DOWN.search(stripped):
            text.log = True
            text.down = text.down or (stripped, number)
            return [signal("gpu_lost", number, body, Prefix(name), detail={"what": m[0].rstrip(": ")})]
        if _MISMATCH.search(stripped):
            text.log = True
            text.down = text.down or (stripped, number)
            return [signal("driver_mismatch", number, body, Prefix(name))]
        if m := _LISTED.match(stripped):
            text.log = True
            if len(text.listed) < MOST_GPUS:
                text.listed.append({"index": int(m[1][:6]), "product": m[2], "uuid": m[3], "line": number})
            return []
        if m := _GPU_HEAD.match(body):
            text.log = True
            if len(text.gpus) < MOST_GPUS:
                text.gpus.append(_Gpu(len(text.gpus), bdf(m[1]), number))
                text.path = []
            return []
        if _TABLE.match(stripped):
            text.log = True
            return []
        if stripped.startswith("|"):
            if m := _TABLE_ROW.match(stripped):
                text.table += 1
                if "ERR!" in stripped:
                    text.table_bad = True
                    return self.emit(
                        signal("gpu_requires_reset", number, body, Prefix(name), gpu=int(m[1]), bdf=bdf(m[2]))
                    )
            return []
        m = _LEAF.match(body)
        indent = len(body) - len(body.lstrip(" "))
        depth, odd = divmod(indent, 4)
        if not text.gpus:
            if (
                m
                and depth == 0
                and (text.log or m[2] in ("Driver Version", "CUDA Version", "Attached GPUs", "Timestamp"))
            ):
                self._head(number, m[2], (m[3] or "").strip(), text)
            return []
        key = m[2] if m else stripped
        gpu = text.gpus[-1]
        if depth == 0 or odd or depth > 8 or len(key) > 100:
            if not m and not stripped.startswith("..."):
                return []
            return []
        del text.path[depth - 1 :]
        if len(text.path) < depth - 1:
            # A line stands deeper than its heading allows: the heading is gone.
            self.note(f"line {number}: a heading above this line is missing", damage=True)
            text.path += ["?"] * (depth - 1 - len(text.path))
        text.path.append(key.lower())
        if depth == 1:
            gpu.headings.append(key)
        if m:
            self._leaf(gpu, "/".join(text.path), (m[3] or "").strip()[:VALUE_LIMIT], number, stripped[:VALUE_LIMIT])
        return []

    def _head(self, line: int, key: str, value: str, text: _Text) -> None:
        if key == "Attached GPUs":
            count = number(value)
            text.log = True
            text.attached, text.attached_line = (int(count) if count is not None and count < 10000 else None), line
        elif key in ("Driver Version", "CUDA Version", "Timestamp"):
            text.log = text.log or key != "Timestamp"
            text.head[key.lower()] = value[:VALUE_LIMIT]

    @staticmethod
    def _leaf(gpu: _Gpu, path: str, value: str, line: int, raw: str) -> None:
        gpu.leaves += 1
        if gpu.leaves > MOST_LEAVES:
            return
        gpu.raw[line] = raw
        gpu.outside += not path.startswith("processes")
        if (m := _SICK.search(value)) and (gpu.sick is None or _worse(m[0]) < _worse(gpu.sick[0])):
            gpu.sick = (value, line, path)
        if _DENIED.search(value):
            gpu.denied = gpu.denied or (line, path)
        if (fact := _FACT_OF.get(path)) is not None:
            old = gpu.facts.get(fact[0])
            # Several names of one fact may stand in one text; the one listed first in FACTS that has a value counts.
            if (
                old is None
                or (_BLANK.match(old[0]) and not _BLANK.match(value))
                or (fact[1] < old[2] and not _BLANK.match(value))
            ):
                gpu.facts[fact[0]] = (value, line, fact[1])
        top, _, rest = path.partition("/")
        if top in (
            "clocks event reasons",
            "clocks throttle reasons",
            "clocks_event_reasons",
            "clocks_throttle_reasons",
        ):
            reason = rest.rpartition("/")[2]
            for old_name in ("clocks_event_reason_", "clocks_throttle_reason_"):
                reason = reason.removeprefix(old_name)
            reason = reason.replace("_", " ")
            if reason in _REASONS or reason == "sw power cap" or not rest:
                gpu.reasons[reason or "all"] = (value, line)
        elif top in ("ecc errors", "ecc_errors"):
            scope, _, counter = rest.partition("/")
            if scope in ("volatile", "aggregate") and counter and len(gpu.ecc.get(scope, ())) < 64:
                gpu.ecc.setdefault(scope, {})[counter.replace("_", " ")] = (value, line)
            elif not rest:
                gpu.ecc["all"] = {"all": (value, line)}
        elif top == "processes":
            leaf = rest.rpartition("/")[2].replace("_", " ")
            if leaf in ("process id", "pid") and len(gpu.processes) < 64:
                pid = number(value)
                gpu.processes.append({"pid": int(pid) if pid is not None and pid < 1e12 else None, "line": line})
            elif gpu.processes and leaf in ("name", "process name"):
                gpu.processes[-1]["name"] = value[:200]
            elif gpu.processes and leaf in ("used gpu memory", "used memory"):
                gpu.processes[-1]["used_mib"] = measure(value)
        leaf = path.rpartition("/")[2].replace("_", " ")
        if leaf in ("sram threshold exceeded", "channel repair pending", "tpc repair pending", "unrepairable memory"):
            gpu.other_flags.append((leaf, value, line))

    # ----------------------------------------------------------------------------------------------------- result

    @staticmethod
    def _lost_signal(name: str | None, lost: tuple[str | None, str, int, str]) -> Signal:
        return signal("gpu_lost", lost[2], lost[3], Prefix(name), bdf=lost[0], detail={"what": lost[1]})

    def _close(self, name: str | None, text: _Text) -> None:
        """Judge one finished output of one host."""
        if not text.log:
            return
        self.runs += 1
        verdicts: list[Verdict] = []
        pre = Prefix(name)
        for lost in text.lost:
            self.found.add(self._lost_signal(name, lost))
            verdicts.append("fail")
        if text.down:
            mismatch = bool(_MISMATCH.search(text.down[0]))
            kind = "driver_mismatch" if mismatch else "gpu_lost"
            self.found.add(signal(kind, text.down[1], text.down[0], pre, detail={"what": text.down[0][:80]}))
            # A library that does not fit the driver is the stack's fault: no GPU was looked at.
            verdicts.append("unknown" if mismatch else "fail")
        if text.attached is not None:
            detail = {"attached": text.attached, "blocks": len(text.gpus)}
            self.found.add(
                signal(
                    "gpu_count", text.attached_line, f"Attached GPUs : {text.attached}", pre,
                    value=float(text.attached), detail=detail,
                )
            )  # fmt: skip
        elif text.listed:
            self.found.add(
                signal(
                    "gpu_count", text.listed[0]["line"], f"{len(text.listed)} GPUs listed", pre,
                    value=float(len(text.listed)),
                )
            )  # fmt: skip
        complete = self._is_complete(text)
        shape = _Shape(text.gpus)
        described = []
        for gpu in text.gpus:
            if text.attached is not None and text.attached != len(text.gpus):
                gpu.index = None  # blocks are missing, so counting them gives no index: the address is what is known
            entry, verdict = self._gpu(gpu, pre, shape)
            described.append(entry)
            verdicts.append(verdict)
        if text.gpus and text.attached is not None and text.attached != len(text.gpus):
            self.note(f"line {text.attached_line}: {text.attached} GPUs are attached, {len(text.gpus)} are described")
            verdicts.append("unknown")
        if text.table_bad:
            verdicts.append("fail")
        if not text.gpus and not text.lost and not text.down and not text.table_bad:
            verdicts.append("unknown")
            self.note("no GPU is described: nothing was checked")
        data: dict[str, Any] = {
            "driver": text.head.get("driver version"),
            "cuda": text.head.get("cuda version"),
            "timestamp": text.head.get("timestamp"),
            "attached": text.attached,
            "gpus": described,
        }
        if text.listed:
            data["devices"] = text.listed
        if text.lost:
            data["lost"] = [{"bdf": w, "text": t, "line": n} for w, t, n, _ in text.lost]
        self.done.append((name, data, worst(verdicts), complete))
        if len(self.done) > 2 * MOST_HOSTS:
            del self.done[0]

    def _is_complete(self, text: _Text) -> bool:
        if text.xml is not None:
            even = self._even(text)
            if text.xml.failed or not text.xml.closed:
                self.note("the XML does not reach its end: the text is cut")
                return False
            return even
        if text.down:
            return True
        if not text.gpus:
            return self.whole
        even = self._even(text)
        others = [g.outside for g in text.gpus[:-1]]
        if even and others and text.gpus[-1].outside < min(others) and text.gpus[-1].sick is None:
            even = False
            self.note("the last GPU's block is shorter than the others: the text is cut")
        if not even or (text.attached is not None and text.attached != len(text.gpus)):
            return False
        if self.whole:
            return True
        if self.cut:
            self.note("the last line has no end: the text is cut")
            return False
        if len(text.gpus) > 1:
            return text.attached is not None
        done = text.gpus[0].headings[-1:] in (["Processes"], ["Capabilities"]) and text.attached == 1
        if not done:
            self.note("the text of a single GPU has no end mark: nothing proves that it is whole")
        return done

    def _even(self, text: _Text) -> bool:
        """Say whether all GPUs' blocks have the same headings; one that lacks some is cut or has a hole."""
        longest = max((g.headings for g in text.gpus), key=len, default=[])
        even = True
        for gpu in text.gpus:
            if gpu.headings != longest:
                even = False
                gpu.partial = True
                self.note(f"line {gpu.line}: the block of {gpu.bdf} lacks headings that another has", True)
        return even

    def _gpu(self, gpu: _Gpu, pre: Prefix, shape: _Shape) -> tuple[dict[str, Any], Verdict]:
        place: dict[str, Any] = {"gpu": gpu.index, "bdf": gpu.bdf}
        verdicts: list[Verdict] = []
        entry: dict[str, Any] = {"index": gpu.index, "bdf": gpu.bdf, "line": gpu.line}
        if pre.host:
            entry["host"] = pre.host

        def say(kind: str, line: int, what: str, **more: Any) -> None:
            self.found.add(signal(kind, line, gpu.raw.get(line, what), pre, **place, **more))

        def unreadable(line: int, what: str, value: str) -> None:
            if gpu.partial and value.startswith("missing"):
                verdicts.append("unknown")
                return  # the block is cut: that is said once, not for everything that it lacks
            say("unreadable", line, f"{what} : {value}", detail={"what": what, "value": value[:80]})
            verdicts.append("unknown")

        if gpu.sick:
            value, line, path = gpu.sick
            kind = "gpu_lost" if "lost" in value.lower() else "gpu_requires_reset"
            say(kind, line, f"{path} : {value}", detail={"what": value[:80], "field": path})
            verdicts.append("fail")
            if kind == "gpu_lost":
                entry["lost"] = value
        if gpu.denied:
            unreadable(gpu.denied[0], gpu.denied[1], "no permission")
        text_facts = ("product", "serial", "uuid", "minor", "module_id", "vbios", "persistence", "mig", "ecc_mode",
                      "recovery_action", "fabric_state", "fabric_status")  # fmt: skip
        for fact in text_facts:
            if fact in gpu.facts:
                value = gpu.facts[fact][0]
                entry[fact] = None if _BLANK.match(value) and value != "None" else value
        values: dict[str, float | None] = {}
        for fact in _NUMERIC:
            if fact in gpu.facts:
                values[fact] = measure(gpu.facts[fact][0])
        for fact in sorted(values):
            if fact.endswith(("_c", "_w", "_mib", "_mhz")) or fact == "replays":
                entry[fact] = values[fact]
        link = {f: values[f] for f in ("width", "width_max", "generation", "generation_max") if f in values}
        if link:
            entry["link"] = link
        remap = {
            short: values.get(f"remap_{short}")
            for short in ("correctable", "uncorrectable")
            if f"remap_{short}" in values
        }
        row: dict[str, Any] = dict(remap)

        verdicts += self._flags(gpu, shape, row, say, unreadable)
        if row:
            entry["row_remap"] = row
        for fact in _JUDGED:
            if fact in shape.numbers and values.get(fact) is None and gpu.sick is None:
                unreadable(gpu.facts.get(fact, ("", gpu.line, 0))[1], fact, gpu.facts.get(fact, ("missing",))[0])
        if shape.recovery and "recovery_action" not in gpu.facts and gpu.sick is None:
            unreadable(gpu.line, "GPU recovery action", "missing, though other GPUs have it")
        verdicts += self._heat(gpu, values, say, unreadable)
        verdicts += self._throttle(gpu, shape, entry, say, unreadable)
        verdicts += self._ecc(gpu, entry, say, unreadable)
        verdicts += self._other(gpu, values, say, unreadable)
        for short in ("correctable", "uncorrectable"):
            value_ = remap.get(short)
            if value_:
                _, line, _ = gpu.facts[f"remap_{short}"]
                say(
                    "row_remap_count",
                    line,
                    f"{short} remapped rows : {value_:g}",
                    value=value_,
                    detail={"cause": short},
                )
        if pages := values.get("pages_double_bit"):
            line = gpu.facts["pages_double_bit"][1]
            say("row_remap_count", line, f"pages retired for double bit errors : {pages:g}", value=pages,
                detail={"cause": "page retirement"})  # fmt: skip
        if gpu.processes:
            entry["processes"] = gpu.processes
        return entry, worst(verdicts)

    @staticmethod
    def _flags(gpu: _Gpu, shape: _Shape, row: dict[str, Any], say: Any, unreadable: Any) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for fact, (kind, what) in _FLAGS.items():
            if fact not in gpu.facts:
                if fact in shape.readable and gpu.sick is None:
                    unreadable(gpu.line, fact.replace("_", " "), "missing, though other GPUs have it")
                continue
            value, line, _ = gpu.facts[fact]
            if fact.startswith("remap_"):
                row[fact[6:]] = {"Yes": True, "No": False}.get(value)
            if value == "Yes":
                say(kind, line, f"{what}: {fact.replace('_', ' ')} : Yes", detail={"what": what})
                verdicts.append("fail")
            elif value == "No":
                verdicts.append("pass")
            elif (not _BLANK.match(value) or fact in shape.readable) and not _SICK.search(value):
                unreadable(line, fact.replace("_", " "), value)
        if "recovery_action" in gpu.facts:
            value, line, _ = gpu.facts["recovery_action"]
            if value in ("None", "No Action", "0x0 (None)"):
                verdicts.append("pass")
            elif _BLANK.match(value):
                unreadable(line, "GPU recovery action", value)
            elif not _SICK.search(value):
                say("gpu_requires_reset", line, f"GPU Recovery Action : {value}", detail={"action": value[:80]})
                verdicts.append("fail")
        for leaf, value, line in gpu.other_flags:
            if value == "Yes":
                kind = {"unrepairable memory": "row_remap_failed", "sram threshold exceeded": "ecc_uncorrectable"}.get(
                    leaf, "row_remap_pending"
                )
                say(kind, line, f"{leaf} : Yes", detail={"what": leaf})
                verdicts.append("fail")
            elif value == "No":
                verdicts.append("pass")
            elif not _BLANK.match(value) and not _SICK.search(value):
                unreadable(line, leaf, value)
        return verdicts

    @staticmethod
    def _heat(gpu: _Gpu, values: dict[str, float | None], say: Any, unreadable: Any) -> list[Verdict]:
        verdicts: list[Verdict] = []
        if "temperature_c" in gpu.facts:
            text, line, _ = gpu.facts["temperature_c"]
            temperature = values["temperature_c"]
            headroom, low = values.get("t_limit_c"), values.get("t_limit_slowdown_c")
            top = values.get("temperature_slowdown_c")
            detail = {k: v for k, v in (("t_limit", headroom), ("t_limit_slowdown", low)) if v is not None}
            if temperature is None:
                if not _SICK.search(text):
                    unreadable(line, "GPU temperature", text)
            else:
                say("gpu_temperature", line, f"GPU Current Temp : {text}", value=temperature, unit="C", limit=top,
                    detail=detail)  # fmt: skip
                # T.Limit is headroom: at the (negative) slowdown value the hardware throttles.
                if headroom is not None and low is not None:
                    verdicts.append("fail" if headroom <= low else "pass")
                elif top is not None:
                    verdicts.append("fail" if temperature >= top else "pass")
        if "power_w" in gpu.facts:
            text, line, _ = gpu.facts["power_w"]
            if values["power_w"] is not None:
                say("gpu_power", line, f"Power Draw : {text}", value=values["power_w"], unit="W",
                    limit=values.get("power_limit_w"))  # fmt: skip
            elif not _SICK.search(text):
                say("unreadable", line, f"Power Draw : {text}", detail={"what": "power draw", "value": text[:80]})
        return verdicts

    @staticmethod
    def _throttle(gpu: _Gpu, shape: _Shape, entry: dict[str, Any], say: Any, unreadable: Any) -> list[Verdict]:
        verdicts: list[Verdict] = []
        active: list[str] = []
        for reason, decides in _REASONS.items():
            if reason not in gpu.reasons:
                if reason in shape.reasons and gpu.sick is None:
                    unreadable(gpu.line, reason, "missing, though other GPUs have it")
                elif reason == "hw slowdown" and gpu.reasons and gpu.sick is None:
                    unreadable(gpu.line, reason, "missing from the clocks reasons")
                continue
            value, line = gpu.reasons[reason]
            if value == "Active":
                active.append(reason)
                say("throttle", line, f"{reason} : Active", detail={"reason": reason})
                verdicts.append("fail" if decides else "pass")
            elif value == "Not Active":
                verdicts.append("pass")
            elif (reason in shape.reasons or not _BLANK.match(value)) and not _SICK.search(value):
                unreadable(line, reason, value)
        if gpu.reasons.get("sw power cap", ("", 0))[0] == "Active":
            active.append("sw power cap")
        if gpu.reasons:
            entry["throttle"] = active
        return verdicts

    @staticmethod
    def _ecc(gpu: _Gpu, entry: dict[str, Any], say: Any, unreadable: Any) -> list[Verdict]:
        verdicts: list[Verdict] = []
        off = gpu.facts.get("ecc_mode", ("", 0, 0))[0] == "Disabled"
        if off:
            unreadable(gpu.facts["ecc_mode"][1], "ECC mode", "Disabled")
        counters: dict[str, dict[str, float | None]] = {}
        blank_line = 0
        readable = False
        for scope in ("volatile", "aggregate"):
            for name, (value, line) in gpu.ecc.get(scope, {}).items():
                if "threshold" in name or "pending" in name or "unrepairable" in name:
                    continue
                n = measure(value)
                counters.setdefault(scope, {})[name] = n
                if n is None:
                    if not _BLANK.match(value) and not _SICK.search(value):
                        unreadable(line, f"{scope} {name}", value)
                    blank_line = blank_line or line
                    continue
                readable = True
                if n > 0 and not name.endswith("total"):
                    kind = "ecc_uncorrectable" if "uncorrectable" in name or "double" in name else "ecc_correctable"
                    say(kind, line, f"{scope} {name} : {value}", value=n, detail={"scope": scope, "counter": name})
        if counters:
            entry["ecc"] = counters
            if readable:
                verdicts.append("pass")
            elif not off and gpu.sick is None:
                unreadable(blank_line, "ECC errors", "N/A")
        return verdicts

    @staticmethod
    def _other(gpu: _Gpu, values: dict[str, float | None], say: Any, unreadable: Any) -> list[Verdict]:
        verdicts: list[Verdict] = []
        width, top = values.get("width"), values.get("width_max")
        if width is not None and top is not None and width < top:
            line = gpu.facts["width"][1]
            say("link_speed", line, f"Link Width Current : {width:g}x", device="pcie", value=width, unit="lanes",
                limit=top)  # fmt: skip
        if "fabric_state" in gpu.facts:
            state, line, _ = gpu.facts["fabric_state"]
            status = gpu.facts.get("fabric_status", ("", 0, 0))[0]
            if not _BLANK.match(state) and not _SICK.search(state):
                good = state == "Completed" and status in ("Success", "")
                verdicts.append("pass" if good else "unknown")
                if not good:
                    say("nvlink_error", line, f"Fabric State : {state}, Status : {status}", device="fabric",
                        detail={"what": "fabric registration", "state": state[:60], "status": status[:60]})  # fmt: skip
        return verdicts

    def read(self) -> Reading:
        """Return the reading of everything in the file."""
        for name, text in self.texts.items():
            self._close(name, text)
        self.texts = {}
        reading = Reading(self.tool, recognised=bool(self.done) or self.runs > 0)
        if not self.done:
            return reading
        reading.verdict = worst([v for _, _, v, _ in self.done])
        reading.complete = all(c for _, _, _, c in self.done) and not self.damaged
        newest: dict[str | None, dict[str, Any]] = {name: data for name, data, _, _ in self.done}
        data = dict(next(iter(newest.values())))
        if len(newest) > 1:
            data["gpus"] = [g for d in newest.values() for g in d["gpus"]]
            data["attached"] = None
            data["hosts"] = {str(n): {k: v for k, v in d.items() if k != "gpus"} for n, d in newest.items()}
        data["runs"] = self.runs
        reading.data = data
        if not reading.complete and reading.verdict != "fail":
            reading.problems.append("nothing proves that this text is whole")
        return reading


class _Shape:
    """What the GPUs of one text have in common: a value that one lacks and the others have is not 'not supported'."""

    def __init__(self, gpus: list[_Gpu]) -> None:
        self.readable: set[str] = set()
        self.reasons: set[str] = set()
        self.numbers: set[str] = set()
        self.recovery = any("recovery_action" in g.facts for g in gpus)
        for gpu in gpus:
            self.numbers |= {f for f in _JUDGED if measure(gpu.facts.get(f, ("",))[0]) is not None}
            self.readable |= {f for f in _FLAGS if gpu.facts.get(f, ("",))[0] in ("Yes", "No")}
            self.reasons |= {r for r in _REASONS if gpu.reasons.get(r, ("",))[0] in ("Active", "Not Active")}


class _Xml:
    """Feeds an XML document line by line into the leaves of a text's GPUs; never loads external or defined entities."""

    def __init__(self, text: _Text) -> None:
        self.text = text
        self.error: str | None = None
        self.failed = False
        self.closed = False
        self.line = 0
        self.path: list[str] = []
        self.value: list[str] = []
        self.size = 0
        self.leaf = False
        self.gpu: _Gpu | None = None
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.EntityDeclHandler = self._entity

    def feed(self, line: int, text: str) -> None:
        """Take one line of the document."""
        self.line = line
        try:
            self.parser.Parse(text, False)
        except (expat.ExpatError, ValueError) as error:
            self.error = str(error)[:200]

    def _entity(self, *_: Any) -> None:
        raise ValueError("it declares entities")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self.path) > 64:
            raise ValueError("it is nested too deeply")
        self.path.append(name)
        self.value, self.size, self.leaf = [], 0, True
        if len(self.path) == 2 and name == "gpu" and len(self.text.gpus) < MOST_GPUS:
            self.gpu = _Gpu(len(self.text.gpus), bdf(attributes.get("id", "")), self.line)
            self.text.gpus.append(self.gpu)
        elif self.gpu is not None and len(self.path) == 3 and len(self.gpu.headings) < 500:
            self.gpu.headings.append(name)

    def _characters(self, data: str) -> None:
        if self.size < VALUE_LIMIT:
            self.value.append(data)
            self.size += len(data)

    def _end(self, name: str) -> None:
        if self.leaf:
            value = "".join(self.value).strip()[:VALUE_LIMIT]
            if self.gpu is not None:
                Parser._leaf(self.gpu, "/".join(self.path[2:]), value, self.line, f"<{name}>{value}</{name}>")
            elif len(self.path) == 2:
                if name == "attached_gpus":
                    count = number(value)
                    self.text.attached = int(count) if count is not None and count < 10000 else None
                    self.text.attached_line = self.line
                elif name in ("driver_version", "cuda_version", "timestamp"):
                    self.text.head[name.replace("_", " ")] = value
        self.leaf = False
        self.value = []
        self.path.pop()
        if name == "gpu" and len(self.path) == 1:
            self.gpu = None
        if not self.path:
            self.closed = name == "nvidia_smi_log"
            if not self.closed:
                raise ValueError("its root is not nvidia_smi_log")
