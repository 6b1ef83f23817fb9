# SPDX-License-Identifier: Apache-2.0
"""Scenarios of simulated campaigns: the lab's files, what only a campaign in memory has, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from burnin import scenarios
from burnin import simulate as world
from burnin.errors import ConfigError
from burnin.ladder import is_gate, replay
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "lab" / "scenarios").glob("*.yaml"))
#: What stands for something that no tool names a node for is found, but under the name of what was seen.
BY_SIGHT = frozenset({"nan_loss", "oom_one_node", "nccl_on_sockets", "fabric_slow"})


def run(**document: Any) -> world.Simulation:
    done = world.drive(world.of_document({"nodes": "n[1-8]", **document}, 1))
    assert world.violations(done) == []
    return done


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_every_scenario_of_the_lab_is_a_simulated_campaign(file: Path) -> None:
    """Each fault of a node is found on its node, as what it is; a fault of the configuration drops nobody and stops."""
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    sim = world.drive(world.of_document(document, 1, file.name))
    assert world.violations(sim) == []
    standing = replay(sim.config, sim.events)
    one_node = {f.nodes[0]: f for f in sim.everything if len(f.nodes) == 1}
    assert set(standing.failed) == set(one_node), "exactly those with a fault"
    for node, fault in one_node.items():
        told = world.found_as(sim, fault)
        assert f"of {node}" in told
        assert fault.kind in BY_SIGHT or f"as {fault.kind} on" in told, told
    configured = [f for f in document.get("faults") or [] if "node" not in f and "between" not in f]
    assert sim.stops == len(configured)


def test_windows_make_the_time_and_shorter_ones_in_isolation_save_it() -> None:
    fault = {"kind": "hang", "node": "n3", "min_nodes": 4}
    windows = {"nccl": {"default": {"hours": 2}, "full": {"hours": 10}}}
    healthy = run(workloads=["nccl"], windows=windows, resume=False)
    assert healthy.hours == 2 * 4 + 10 and healthy.node_hours == 8 * (2 * 4 + 10)
    counted = run(
        workloads=["hpl"], windows={"hpl": {"default": {"iterations": 6}}}, iteration_minutes=20, resume=False
    )
    assert counted.hours == pytest.approx(5 * 2)
    usual = run(workloads=["nccl"], windows=windows, faults=[fault])
    short = run(workloads=["nccl"], windows=windows, faults=[fault], shorten_isolation=True)
    tested = sum(2.0 for h, _, _ in usual.heats if any(g.isolation for g in h.groups))
    assert usual.rounds >= 2 and tested > 0
    for sim in (usual, short):
        assert set(replay(sim.config, sim.events).failed) == {"n3"}


def test_operators_and_repairs_of_a_file() -> None:
    sim = run(
        faults=[{"kind": "gpu_off_bus", "node": "n5", "part": "gpu5", "step": "x4"}],
        operator=[
            {"drain": "n[1-2]", "heat_of_all": 1, "until": 3},
            {"step": "halves", "ends_as": "CANCELLED"},
            {"add_node": 4},
        ],
        repairs=[{"node": "n5", "fixes": False}, {"node": "n5"}, {"node": "n7"}],
    )  # fmt: skip
    standing = replay(sim.config, sim.events)
    assert len(sim.config.nodes) == 9 and not standing.failed and not standing.withdrawn
    assert len(standing.repairs["n5"]) == 2, "the first fixed nothing; n7 was never out"
    assert [e["returned"]["node"] for e in sim.events if "returned" in e] == ["n1", "n2"]
    text = world.report(sim)
    assert "still wrong:  nothing" in text and "truth:        n5 gpu_off_bus gpu5" in text and "2 repairs" in text


def test_a_link_of_a_file_is_found_and_repaired() -> None:
    link = {"kind": "hang", "between": ["n1", "n2"]}
    sim = run(workloads=["nccl"], faults=[link])
    assert "found in x2 as a link, n1 - n2" in world.report(sim)
    assert set(replay(sim.config, sim.events).unresolved) == {"n1", "n2"}
    sim = run(workloads=["nccl"], faults=[link], repairs=[{"link": ["n1", "n2"]}])
    standing = replay(sim.config, sim.events)
    assert standing.roster(sim.config.nodes) == list(sim.config.nodes)
    assert "(repaired since)" in world.report(sim)


def test_who_comes_back_is_in_and_who_stays_away_is_nobodys_fault() -> None:
    sim = run(workloads=["nccl"], operator=[{"drain": "n3"}, {"drain": "n4", "until": 2}])
    standing = replay(sim.config, sim.events)
    assert set(standing.withdrawn) == {"n3"} and not standing.failed and not standing.unresolved
    assert "withdrawn:    n3" in world.report(sim) and len(standing.roster(sim.config.nodes)) == 7


def test_who_shows_another_stack_is_out_and_who_put_it_back_is_in() -> None:
    sim = run(
        workloads=["nccl"],
        operator=[{"restack": "n3", "heat_of_all": 1}, {"restack": "n4", "heat_of_all": 1, "until": 3}],
    )
    standing = replay(sim.config, sim.events)
    assert set(standing.withdrawn) == {"n3"} and not standing.failed and not sim.stops
    assert {a["cause"] for of in standing.away.values() for a in of} == {"stack"} and set(standing.away) == {"n3", "n4"}
    sim = run(workloads=["nccl"], operator=[{"restack": "n[1-8]", "heat_of_all": 1}])
    assert sim.stops == 1 and len(replay(sim.config, sim.events).roster(sim.config.nodes)) == 8
    assert [g["stopped"]["kind"] for g in sim.gates() if g["stopped"]] == ["stack"]


@pytest.mark.parametrize(
    ("document", "key"),
    [
        ({"nodes": "n[1-4]", "nodez": 1}, "scenario"),
        ({"nodes": "n[1-4]", "faults": [{"kind": "hang", "node": "n9"}]}, "scenario.faults.0"),
        ({"nodes": "n[1-4]", "faults": [{"kind": "hang", "node": "n1", "step": "x64"}]}, "scenario.faults.0.step"),
        ({"nodes": "n[1-4]", "operator": [{"drain": "n7"}]}, "scenario.operator.0"),
        ({"nodes": "n[1-4]", "workloads": ["linpack"]}, "scenario.workloads.0"),
        ({"nodes": "n[1-4]", "topology": {"leaves": {"l1": "m[1-9]"}}}, "scenario.topology"),
        (None, "scenario"),
    ],
)
def test_what_a_scenario_may_not_say(document: Any, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        world.of_document(document)
    assert refused.value.key.startswith(key)


def test_the_command(tmp_path: Path) -> None:
    from burnin.commands.simulate import simulate

    file = tmp_path / "s.yaml"
    file.write_text(
        yaml.safe_dump({"nodes": "n[1-4]", "workloads": ["nccl"], "faults": [{"kind": "hang", "node": "n2"}]})
    )
    done = CliRunner().invoke(simulate, [str(file)])
    assert done.exit_code == 0 and "n2 hang at >= 1 nodes: found in single as hang on node of n2" in done.output
    assert CliRunner().invoke(simulate, [str(file), "--nodes", "4"]).exit_code == 2
    with pytest.raises(ConfigError):
        CliRunner().invoke(simulate, [str(tmp_path / "none.yaml")], catch_exceptions=False)


def test_random_campaigns_have_what_real_ones_have() -> None:
    """Over some seeds: a resume test, leaves, links and nodes that fail, operators who drain, cancel and add nodes."""
    made = [scenarios.scenario(seed) for seed in range(150)]
    assert any(s.config.workloads.get("resume") for s in made) and any(s.config.topology for s in made)
    assert any(s.config.short for s in made) and any(s.grows for s in made) and any(s.config_fault for s in made)
    assert {f.how for s in made for f in s.everything} == {"signal", "crash", "mute", "slow", "unread"}
    assert any(len(f.nodes) == 2 for s in made for f in s.everything) and any(s.operator for s in made)
    assert any(f.chance < 1 for s in made for f in s.everything)
    assert any(len(s.stacks) == 1 for s in made) and any(len(s.stacks) * 2 > len(s.config.nodes) for s in made)
    drained = [s.seed for s in made if s.drains]
    ends = [world.simulate(seed) for seed in drained[:12]]
    assert any("returned" in e for s in ends for e in s.events if not is_gate(e))
