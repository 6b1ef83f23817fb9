# SPDX-License-Identifier: Apache-2.0
"""The Xid table against NVIDIA's catalogue, and the rules that turn kernel lines into verdicts."""

from __future__ import annotations

import re

import pytest
import yaml
from burnin.errors import ConfigError
from burnin.parsers.reading import Signal
from burnin.xid import (
    ORDER,
    TABLE,
    XidEvent,
    XidVerdict,
    events_from_signals,
    judge_xids,
    load_table,
    recovery_action,
    table_from,
)
from hypothesis import given
from hypothesis import strategies as st

DOCUMENT = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
XIDS = load_table()
START, END = 1_000_000.0, 1_003_600.0


def numbers(text: str) -> set[int]:
    out: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        out |= set(range(int(first), int(last or first) + 1))
    return out


UNUSED = numbers("1-7,9,10,12,14-24,26-30,33-36,42,47,49-53,55-59,61,65,73,81,87,90,91,108,111-118,122-125,138")
# NVIDIA's immediate action of every code in use, written down a second time, from the catalogue.
IMMEDIATE = {
    "restart_app": "8,11,13,25,31,32,39-41,60,68-72,75-77,80,82-86,88,89,94,96-105,126-135,139",
    "ignore": "37,38,43,44,63,66,67,92,93,106,107,121,137,141,152,153,157,160,161",
    "reset_gpu": "46,62,64,95,109,110,119,120,136,140,143,155,156,158",
    "workflow_45": "45",
    "workflow_48": "48",
    "check_mechanicals": "54",
    "workflow_nvlink": "74",
    "update_software": "78",
    "restart_node": "79",
    "contact_support": "142",
    "workflow_nvlink5": "144-150",
    "restart_vm": "151",
    "see_154": "154",
    "check_uvm": "159",
    "none": "162-170",
    "follow_48": "171,172",
}


def event(code: int, at: float | None = 10.0, node: str = "dgx05", gpu: int | None = 5, **more: object) -> XidEvent:
    line = more.pop("line", int((at or 0) * 10) + code)
    return XidEvent(
        node=node,
        code=code,
        gpu=gpu,
        bdf=more.pop("bdf", f"0000:{0x10 + (gpu or 0):02x}:00"),  # type: ignore[arg-type]
        time=None if at is None else START + at,
        line=line,  # type: ignore[arg-type]
        **{"run": "r1", "source": "after.log", "text": f"NVRM: Xid: {code}, something", **more},  # type: ignore[arg-type]
    )


def judge(*events: XidEvent, **more: object) -> list[XidVerdict]:
    return judge_xids(events, XIDS, START, END, **more)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------- table


def test_every_code_from_1_to_172_is_there() -> None:
    assert set(XIDS.codes) == set(range(1, 173))


def test_unused_codes_are_marked_and_still_counted() -> None:
    assert {code for code, entry in XIDS.codes.items() if entry.unused} == UNUSED
    assert all(XIDS.codes[code].severity == "counted" for code in UNUSED)


def test_immediate_actions_are_nvidias() -> None:
    expected = {code: action for action, codes in IMMEDIATE.items() for code in numbers(codes)}
    assert set(expected) == set(range(1, 173)) - UNUSED
    assert {code: XIDS.codes[code].immediate for code in expected} == expected


def test_gpu_resets_end_the_run_except_a_handled_retirement() -> None:
    # What needs a reset of the GPU cannot go on; 156 is retired by the GPU itself, 94 only asks for the job again.
    for code, entry in XIDS.codes.items():
        if entry.immediate in ("reset_gpu", "restart_node", "check_mechanicals"):
            assert entry.severity == ("counted" if code == 156 else "fatal"), code


@pytest.mark.parametrize("code", [13, 31, 43])
def test_application_codes(code: int) -> None:
    assert XIDS.codes[code].severity == "app"


def test_memory_codes_of_the_guide_are_what_an_acceptance_plan_says() -> None:
    assert [XIDS.codes[c].severity for c in (48, 63, 64, 74, 79, 94, 95)] == [
        "fatal", "counted", "fatal", "fatal", "fatal", "fatal", "fatal",
    ]  # fmt: skip


def test_every_key_has_a_comment_that_says_why() -> None:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    keys = [n for n, line in enumerate(lines) if re.match(r"[a-z_]+:|  [a-z]+_[a-z_]+: [0-9\"f]", line)]
    assert len(keys) > 12
    for number in keys:
        if not re.match(r"  [a-z]+_[a-z0-9_]+: .*[a-z ]{12}", lines[number]):  # actions are sentences themselves
            assert lines[number - 1].lstrip().startswith("#"), lines[number]


def test_a_sites_override_changes_one_key_and_leaves_the_rest() -> None:
    table = load_table(overrides={"codes": {109: {"severity": "counted"}}, "rules": {"repeat_runs": 3}})
    assert (table.codes[109].severity, table.codes[109].immediate) == ("counted", "reset_gpu")
    assert (table.rules.repeat_runs, table.rules.chain_s) == (3, XIDS.rules.chain_s)


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ({"codes": {109: {"severity": "bad"}}}, "xid.codes.109.severity"),
        ({"codes": {109: {"immediate": "dance"}}}, "xid.codes.109.immediate"),
        ({"rules": {"repeat_runs": 1}}, "xid.rules.repeat_runs"),
        ({"unknown": {"then": "dance"}}, "xid.unknown.then"),
        ({"codes": {"x": {"severity": "app"}}}, "xid.codes"),
    ],
)
def test_a_bad_override_is_refused_by_key(overrides: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as error:
        table_from(DOCUMENT, overrides)
    assert error.value.key == key
    assert error.value.cure


# ------------------------------------------------------------------------------------------------------------ window


def test_an_event_before_the_run_or_after_it_does_not_count() -> None:
    assert judge(event(79, -3600.0)) == []
    assert judge(event(79, 2 * 3600.0)) == []
    assert len(judge(event(79, 0.0))) == 1
    # dmesg -T cuts fractions of a second off, so an event right at the start may be printed a moment earlier
    assert len(judge(event(79, -0.9))) == 1


def test_without_times_only_what_the_probe_before_did_not_list_is_new() -> None:
    old = event(79, None, source="before.log")
    assert judge(event(79, None), before=[old]) == []
    again = [event(79, None, line=1), event(79, None, line=2)]
    (verdict,) = judge(*again, before=[old])
    assert (verdict.count, verdict.certain) == (1, True)


def test_without_times_and_without_a_probe_before_it_says_that_it_is_not_certain() -> None:
    (verdict,) = judge(event(79, None))
    assert not verdict.certain
    assert "not known" in verdict.why
    (verdict,) = judge(event(79, None), before=[])
    assert verdict.certain


def test_the_same_line_in_ten_probes_is_one_event() -> None:
    (verdict,) = judge(*[event(63, 5.0, source=f"probe-{i}.log") for i in range(10)])
    assert verdict.count == 1
    (verdict,) = judge(event(63, 5.0, line=1), event(63, 5.0, line=2))
    assert verdict.count == 2


# ------------------------------------------------------------------------------------------------------------- rules


def test_the_guides_gpu_that_fell_off_the_bus() -> None:
    line = (
        "[Tue Nov 10 13:47:05 2026] NVRM: Xid (PCI:0000:c3:00): 79, pid=48122, name=python, GPU has fallen off the bus."
    )
    signal = Signal("xid", 1, line, host="dgx05", bdf="0000:c3:00", value=79, detail={"time": START + 5})
    events = events_from_signals(
        [signal], run="r1", source="pdsh.log", gpus={"0000:c3:00": {"index": 5, "serial": "165"}}
    )
    (verdict,) = judge(*events)
    assert (verdict.node, verdict.part, verdict.serial, verdict.severity) == ("dgx05", "gpu5", "165", "fatal")
    assert verdict.counts and verdict.evidence == (("pdsh.log", 1),)
    assert verdict.why.startswith("Xid 79 (GPU has fallen off the bus) on dgx05 gpu5, once, first 1970-01-12")
    assert "reseat or replace" in verdict.next_action and "dcgmi diag -r 3" in verdict.next_action
    assert verdict.nvidia_action.startswith("drain the node and power-cycle")


def test_cleanup_after_another_xid_is_not_a_fault() -> None:
    flood = [event(45, 11.0 + i / 1000, line=i) for i in range(5000)]
    verdicts = judge(event(79, 10.0), *flood)
    assert [(v.code, v.severity, v.counts, v.caused_by) for v in verdicts] == [
        (79, "fatal", True, None),
        (45, "info", False, 79),
    ]
    assert verdicts[1].count == 5000 and len(verdicts[1].evidence) == 20


def test_cleanup_alone_names_the_fabric_manager_and_does_not_count() -> None:
    (verdict,) = judge(event(45))
    assert (verdict.severity, verdict.counts, verdict.caused_by) == ("info", False, None)
    assert "fabric manager" in verdict.next_action


def test_cleanup_on_another_gpu_is_not_excused_by_this_one() -> None:
    verdicts = judge(event(79, 10.0, gpu=5), event(94, 11.0, gpu=6))
    assert [(v.part, v.severity) for v in verdicts] == [("gpu5", "fatal"), ("gpu6", "fatal")]


@pytest.mark.parametrize("code", [94, 95])
def test_memory_errors_alone_count_and_after_another_they_follow_it(code: int) -> None:
    (alone,) = judge(event(code))
    assert (alone.severity, alone.counts) == ("fatal", True)
    first, second = judge(event(79, 10.0), event(code, 12.0))
    assert (first.code, second.severity, second.caused_by) == (79, "info", 79)


def test_a_memory_error_is_not_excused_by_something_harmless_or_long_ago() -> None:
    # 13 is the application's: if it excused a 94, uncorrectable memory errors would vanish behind a crash they caused.
    assert judge(event(13, 10.0), event(94, 12.0))[1].severity == "fatal"
    assert judge(event(79, 10.0), event(94, 3000.0))[1].severity == "fatal"
    # nor by one that came later
    assert judge(event(94, 10.0), event(79, 12.0))[0].severity == "fatal"


def test_uncorrectable_error_remap_and_containment_are_one_event() -> None:
    (verdict,) = judge(event(48, 10.0), event(63, 10.2), event(94, 10.3))
    assert (verdict.code, verdict.codes, verdict.severity, verdict.count) == (48, (48, 63, 94), "fatal", 1)
    assert len(verdict.evidence) == 3
    assert "Xid 48+63+94" in verdict.why


def test_a_failed_remap_in_the_chain_decides_the_next_step() -> None:
    (verdict,) = judge(event(48, 10.0), event(64, 10.2), event(95, 10.3))
    assert verdict.codes == (48, 64, 95)
    assert "replace the GPU if the remap fails again" in verdict.next_action


def test_a_remap_alone_is_counted_and_hours_apart_it_is_counted_twice() -> None:
    (verdict,) = judge(event(63, 10.0), event(63, 3000.0))
    assert (verdict.severity, verdict.count, verdict.counts) == ("counted", 2, True)
    verdicts = judge(event(48, 10.0), event(63, 3000.0))
    assert [v.codes for v in verdicts] == [(48,), (63,)]


def test_a_failed_remap_is_fatal() -> None:
    assert judge(event(64))[0].severity == "fatal"


def test_caused_by_previous_xid_never_counts() -> None:
    text = "NVRM: Xid (PCI:0000:15:00): 45, pid=1, name=x, channel 0x1 caused by previous Xid 149"
    (verdict,) = judge(event(45, text=text))
    assert (verdict.counts, verdict.caused_by, verdict.severity) == (False, 149, "info")
    (verdict,) = judge(event(94, text="Contained: x. RST: No, D-RST: No caused by previous Xid 149"))
    assert not verdict.counts


@pytest.mark.parametrize("code", [13, 31])
def test_an_application_fault_becomes_the_gpus_when_it_repeats_across_runs(code: int) -> None:
    (once,) = judge(event(code), event(code, 20.0))
    assert (once.severity, once.counts, once.repeated) == ("app", False, False)
    (same_run,) = judge(event(code), history=[event(code, -9999.0)])
    assert same_run.severity == "app"
    (again,) = judge(event(code), history=[event(code, -9999.0, run="r0")])
    assert (again.severity, again.counts, again.repeated, again.runs) == ("fatal", True, True, ("r0", "r1"))
    assert "2 different runs" in again.why and "diagnostic" in again.next_action
    (other_gpu,) = judge(event(code), history=[event(code, -9999.0, run="r0", gpu=4)])
    assert other_gpu.severity == "app"


def test_repeats_follow_the_serial_number_to_another_slot_and_node() -> None:
    there = event(31, -9999.0, node="dgx01", gpu=2, serial="S1", run="r0")
    (verdict,) = judge(event(31, serial="S1"), history=[there])
    assert verdict.repeated
    (verdict,) = judge(event(31, serial="S2"), history=[event(31, -9999.0, serial="S1", run="r0")])
    assert not verdict.repeated  # same address, but the board was swapped


def test_a_graphics_exception_on_another_unit_of_the_gpu_points_at_the_program() -> None:
    here = event(13, text="13, pid=1, Graphics SM Warp Exception on (GPC 2, TPC 1, SM 0): Out Of Range Address")
    elsewhere = event(13, -9.0, run="r0", text="13, pid=1, Graphics SM Warp Exception on (GPC 5, TPC 0, SM 1): x")
    (verdict,) = judge(here, history=[elsewhere])
    assert verdict.severity == "app" and "another unit" in verdict.why
    (verdict,) = judge(here, history=[event(13, -9.0, run="r0", text=here.text)])
    assert verdict.severity == "fatal"


def test_a_fault_that_every_gpu_shows_stays_the_programs() -> None:
    now = [event(31, gpu=g) for g in range(8)]
    past = [event(31, -9999.0, gpu=g, run="r0") for g in range(8)]
    verdicts = judge(*now, history=past)
    assert {v.severity for v in verdicts} == {"app"}
    assert "8 GPUs show it" in verdicts[0].why


def test_43_is_the_applications_however_often_it_comes() -> None:
    (verdict,) = judge(event(43), history=[event(43, -9.0, run="r0")])
    assert (verdict.severity, verdict.counts) == ("app", False)


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x1 0x2 0x3 0x4 0x5 0x6)", "fatal"),
        ("145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x1 0x2 0x3 0x4 0x5 0x6)", "counted"),
        ("145, RLW_RXPIPE XC0 i0 Link 13 (0x1", "fatal"),
    ],
)
def test_fatal_or_nonfatal_decides_for_nvlink_5_and_two_ends_are_named(text: str, severity: str) -> None:
    (verdict,) = judge(event(int(text[:3]), text=text))
    assert verdict.severity == severity and verdict.counts
    assert len(verdict.ends) == 2 and "dgx05 gpu5 link" in verdict.ends[0]
    assert "both ends" in verdict.why and verdict.kind == "LINK"


def test_nvlink_lines_of_one_kind_are_one_verdict_a_link() -> None:
    lines = [
        event(149, 10.0 + i, text=f"149, NETIR_BER_EVENT Nonfatal XC0 i0 Link {i % 2:02d} (0x0)") for i in range(10)
    ]
    assert [(v.link, v.count) for v in judge(*lines)] == [(0, 5), (1, 5)]


def test_xid_74_names_two_ends_too() -> None:
    (verdict,) = judge(event(74, text="74, pid=1, NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000)"))
    assert (verdict.severity, verdict.link, len(verdict.ends)) == ("fatal", 14, 2)
    (verdict,) = judge(event(149, text="149, NETIR Fatal XC0 i0 Link -1 (0x0)"))
    assert verdict.ends[0] == "dgx05 gpu5"


RESET = "Xid: 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
REBOOT = "Xid: 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
BACK = "Xid: 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (RESET, 1),
        (REBOOT, 2),
        (REBOOT.replace("Node Reboot Required", "OS Reboot"), 2),
        (RESET.replace("0x1 (GPU Reset Required)", "0x3 (Drain P2P)"), 3),
        (RESET.replace("0x1 (GPU Reset Required)", "0x4 (Drain and Reset)"), 4),
        (BACK, 0),
        ("GPU Recovery Action: Drain and Reset", 4),
        ("something else", None),
    ],
)
def test_the_second_value_of_154_is_read(text: str, number: int | None) -> None:
    assert recovery_action(text, XIDS)[0] == number


def test_the_drivers_own_verdict_overrides_the_table() -> None:
    (verdict,) = judge(event(13, 10.0), event(154, 11.0, text=REBOOT))
    assert (verdict.code, verdict.codes, verdict.severity) == (13, (13, 154), "fatal")
    assert verdict.next_action.startswith("drain the node and reboot it")
    assert "Node Reboot Required" in verdict.why
    (verdict,) = judge(event(79, 10.0), event(154, 11.0, text=REBOOT))
    assert verdict.codes == (79, 154) and "power-cycle" in verdict.next_action


def test_a_154_alone_stands_for_itself_and_a_change_to_none_is_a_recovery() -> None:
    (verdict,) = judge(event(154, text=RESET))
    assert (verdict.severity, verdict.counts) == ("fatal", True)
    assert "no other Xid" in verdict.why
    (verdict,) = judge(event(154, text=BACK))
    assert (verdict.severity, verdict.counts) == ("info", False)
    assert "recovery" in verdict.why


def test_a_recovery_does_not_wipe_out_what_happened() -> None:
    verdicts = judge(event(46, 10.0), event(154, 11.0, text=RESET), event(154, 12.0, text=BACK))
    assert [(v.code, v.severity) for v in verdicts] == [(46, "fatal"), (154, "info")]


def test_a_154_that_cannot_be_read_is_counted_not_dropped() -> None:
    (verdict,) = judge(event(154, text="154, GPU recov"))
    assert verdict.severity == "counted" and "could not be read" in verdict.why


@pytest.mark.parametrize("code", [173, 176, 999, 4])
def test_unknown_and_unused_numbers_are_reported(code: int) -> None:
    (verdict,) = judge(event(code))
    assert (verdict.severity, verdict.counts) == ("counted", True)
    assert str(code) in verdict.why and verdict.next_action


def test_a_gpu_known_only_by_address_gets_its_index_from_another_line() -> None:
    verdicts = judge(event(92, 1.0, gpu=5, bdf="0000:c3:00"), event(79, 2.0, gpu=None, bdf="0000:c3:00"))
    assert [v.part for v in verdicts] == ["gpu5", "gpu5"]
    (verdict,) = judge(event(79, gpu=None, bdf="0000:c3:00"))
    assert verdict.part == "0000:c3:00"


def test_verdicts_come_in_order_of_time_not_of_gravity() -> None:
    verdicts = judge(event(79, 50.0, node="dgx02"), event(63, 10.0, node="dgx01"), event(13, None, node="dgx03"))
    assert [v.node for v in verdicts] == ["dgx01", "dgx02", "dgx03"]


def test_signals_without_a_host_need_a_node() -> None:
    signal = Signal("xid", 3, "x", value=79, detail={"uptime": 100.0})
    with pytest.raises(ValueError, match="line 3"):
        events_from_signals([signal])
    (found,) = events_from_signals([signal, Signal("throttle", 4, "y")], node="dgx01", boot_time=START - 50)
    assert (found.node, found.time) == ("dgx01", START + 50)
    (found,) = events_from_signals([signal], node="dgx01")
    assert found.time is None


@pytest.mark.parametrize(
    ("detail", "known", "time"),
    [
        ({"time": 100.0, "clock": "boot"}, {}, None),
        ({"time": 100.0, "clock": "boot"}, {"boot_time": START}, START + 100),
        ({"time": START, "clock": "utc"}, {}, START),
        ({"time": START, "clock": "local"}, {}, None),
        ({"time": START + 3600, "clock": "local"}, {"utc_offset_s": 3600.0}, START),
        ({"time": START, "clock": "no-year"}, {"utc_offset_s": 0.0}, None),
        ({"time": START, "clock": "local", "uptime": 5.0}, {"boot_time": START}, START + 5),
        ({}, {"boot_time": START}, None),
    ],
)
def test_the_clock_of_a_stamp_decides_what_it_means(
    detail: dict[str, object], known: dict[str, float], time: float | None
) -> None:
    (found,) = events_from_signals([Signal("xid", 1, "x", host="n", value=79, detail=detail)], **known)  # type: ignore[arg-type]
    assert found.time == time


def test_an_old_line_is_not_new_because_the_clock_was_corrected() -> None:
    text = "[Tue Nov 10 13:47:0{} 2026] NVRM: Xid (PCI:0000:c3:00): 79, pid=1, GPU has fallen off the bus."
    old, again = event(79, None, text=text.format(5), source="before"), event(79, None, text=text.format(6))
    assert judge(again, before=[old]) == []
    # nor are two probes of it during the run two events
    (verdict,) = judge(again, event(79, None, text=text.format(7), source="later"), before=[])
    assert verdict.count == 1


def test_seconds_since_boot_tell_equal_messages_apart() -> None:
    text = "[ {}.500000] NVRM: Xid (PCI:0000:c3:00): 63, Row Remapper: New row marked for remapping."
    old = event(63, None, text=text.format(100), source="before")
    # the ring buffer lost the old line and has a new one that reads the same
    (verdict,) = judge(event(63, None, text=text.format(900)), before=[old])
    assert verdict.count == 1
    both = [event(63, None, text=text.format(900), source="a"), event(63, None, text=text.format(950), source="b")]
    assert judge(*both, before=[old])[0].count == 2


def test_probes_that_only_show_what_is_new_do_not_hide_a_second_event() -> None:
    (verdict,) = judge(event(63, 10.0, source="probe-1"), event(63, 2000.0, source="probe-2"))
    assert verdict.count == 2


def test_plain_mappings_are_events_too() -> None:
    (verdict,) = judge_xids([{"node": "n", "gpu": 0, "code": 79, "time": START, "other": 1}], XIDS, START, END)
    assert verdict.part == "gpu0"
    assert verdict.to_dict()["severity"] == "fatal"


# -------------------------------------------------------------------------------------------------------- properties

CODES = st.one_of(st.sampled_from([13, 31, 43, 45, 48, 63, 64, 74, 79, 92, 94, 95, 149, 154, 173]), st.integers(1, 176))
TEXTS = st.sampled_from(["", RESET, REBOOT, BACK, "149, NETIR Fatal Link 08", "145, RLW Nonfatal Link 01"])
EVENTS = st.builds(
    lambda code, at, gpu, text: event(code, at, gpu=gpu, text=text),
    CODES,
    st.one_of(st.none(), st.floats(-4000, 8000)),
    st.integers(0, 2),
    TEXTS,
)


def worst(verdicts: list[XidVerdict], gpu: int) -> int:
    return max((ORDER[v.severity] for v in verdicts if v.gpu == gpu), default=-1)


@given(st.lists(EVENTS, max_size=12))
def test_nothing_is_dropped_and_nothing_outside_the_window_counts(events: list[XidEvent]) -> None:
    verdicts = judge(*events)
    for e in events:
        if e.time is None or START - 1 <= e.time <= END + 1:
            assert any(v.gpu == e.gpu and e.code in v.codes for v in verdicts)
    for v in verdicts:
        assert v.time is None or START - 1 <= v.time <= END + 1
        assert v.why and v.next_action and v.nvidia_action
        assert v.counts == (v.severity in ("counted", "fatal"))


@given(st.lists(EVENTS, max_size=8), EVENTS)
def test_one_more_event_never_makes_a_gpu_look_better(events: list[XidEvent], more: XidEvent) -> None:
    before, after = judge(*events), judge(*events, more)
    for gpu in range(3):
        assert worst(after, gpu) >= worst(before, gpu)


def test_a_flood_in_many_probes_costs_no_more_than_its_lines() -> None:
    import time

    flood = [event(45, i / 100, line=i, source=f"p{probe}") for probe in range(5) for i in range(10_000)]
    begin = time.process_time()
    (verdict,) = judge(*flood)
    assert verdict.count == 10_000
    assert time.process_time() - begin < 5


@given(st.lists(EVENTS, max_size=8))
def test_a_second_probe_of_the_same_log_changes_nothing(events: list[XidEvent]) -> None:
    from dataclasses import replace

    again = [replace(e, source="later.log") for e in events]
    assert [(v.codes, v.severity, v.count, v.part) for v in judge(*events)] == [
        (v.codes, v.severity, v.count, v.part) for v in judge(*events, *again)
    ]
