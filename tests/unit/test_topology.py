# SPDX-License-Identifier: Apache-2.0
"""Topologies are read as Slurm and the site write them; what is unknown stays unknown; what is wrong names its cure."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from burnin.errors import ConfigError
from burnin.nodes import expand
from burnin.topology import Place, Topology, from_document, from_slurm, unknown
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
NODES = expand("dgx[01-08]")

TREE = """\
SwitchName=core Level=2 LinkSpeed=1 Nodes=dgx[01-16] Switches=pod[1-2]
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=dgx[01-04]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=dgx[05-08]
SwitchName=leaf3 Level=0 LinkSpeed=1 Nodes=dgx[09-16]
SwitchName=pod1 Level=1 LinkSpeed=1 Nodes=dgx[01-08] Switches=leaf[1-2]
SwitchName=pod2 Level=1 LinkSpeed=1 Nodes=dgx[09-16] Switches=leaf3
"""
BLOCK = """\
BlockName=b1 BlockIndex=0 Nodes=dgx[01-04] BlockSize=4
BlockName=b2 BlockIndex=1 Nodes=dgx[05-08] BlockSize=4
BlockName=b3 BlockIndex=2 BlockSize=4
AggregatedBlock=b[1-2] BlockIndex=3 Nodes=dgx[01-08] BlockSize=8
"""
OLD_BLOCK = "BlockName=b1 BlockIndex=0 Nodes=dgx[01-08]\n"  # Slurm 23.11


def test_tree() -> None:
    topology = from_slurm(TREE, NODES)
    assert topology.source == "slurm tree" and topology.nodes == tuple(NODES)
    assert topology.place("dgx01") == Place("leaf1", ("pod1", "core"))
    # core and pod1 are above all nodes of this campaign: they tell nothing
    assert topology.tiers == 1
    everyone = from_slurm(TREE, expand("dgx[01-16]"))
    assert everyone.tiers == 2
    assert everyone.unit("dgx09", 0) == ("pod2", "leaf3") and everyone.unit("dgx09", 1) == ("pod2",)


def test_trailing_blanks_comments_and_topology_conf() -> None:
    old = "\n".join(line + " " for line in TREE.splitlines())  # as Slurm before 23.11 prints it
    assert from_slurm(old, NODES).places == from_slurm(TREE, NODES).places
    conf = """# topology.conf
SwitchName=leaf1 Nodes=dgx[01-04]   # first row
switchname=leaf2 nodes=dgx[05-08]
SwitchName=spine1 Switches=leaf[1-2]
SwitchName=spine2 Switches=leaf[1-2]
"""
    assert from_slurm(conf, NODES).place("dgx05") == Place("leaf2", ("spine[1-2]",))


def test_links_that_skip_a_tier() -> None:
    text = """SwitchName=leaf1 Nodes=dgx[01-08]
SwitchName=pod Switches=leaf1
SwitchName=core Switches=pod,leaf1
"""
    assert from_slurm(text, NODES).place("dgx01").above == ("pod", "core")


def test_a_node_on_several_leaves_has_their_set_as_its_leaf() -> None:
    text = "SwitchName=rail0 Nodes=dgx[01-08]\nSwitchName=rail1 Nodes=dgx[01-04]\nSwitchName=rail2 Nodes=dgx[05-08]\n"
    topology = from_slurm(text, NODES)
    assert [topology.place(n).leaf for n in ("dgx01", "dgx08")] == ["rail[0-1]", "rail[0,2]"]


def test_block() -> None:
    topology = from_slurm(BLOCK, NODES)
    assert topology.source == "slurm block"
    assert topology.place("dgx05") == Place("b2", ("b1..b2",))
    assert from_slurm(OLD_BLOCK, NODES).place("dgx08").leaf == "b1"


@pytest.mark.parametrize("text", ["", "\n\n", "No topology information available\n"])
def test_nothing_known(text: str) -> None:
    topology = from_slurm(text, NODES)
    assert (topology.source, topology.known, topology.tiers, topology.places) == ("unknown", False, 0, {})
    assert topology.unplaced == tuple(NODES)
    assert unknown(NODES).document() == {}


@pytest.mark.parametrize(
    ("text", "value", "words"),
    [
        ("PartitionName=gpu Nodes=dgx[01-08]", "PartitionName", "config/topology.example.yaml"),
        ("hello", "hello", "config/topology.example.yaml"),
        ("SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=dgx[01-0", "dgx[01-0", "unset SLURM_TOPO_LEN"),
        ("SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=cpu[1-4]", "cpu[1-4]", "null if it is not known"),
        ("SwitchName=leaf1 Nodes=dgx01,dgx01", "dgx01", "named twice"),
        ("SwitchName=l Nodes=dgx01\nSwitchName=a Switches=l,b\nSwitchName=b Switches=a", "'a'", "circle"),
        ("SwitchName=l Nodes=dgx01\nBlockName=b BlockIndex=0 Nodes=dgx02", "both", "keep the lines of one"),
    ],
)
def test_slurm_output_that_is_refused(text: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        from_slurm(text, NODES)
    assert error.value.key.startswith("topology")
    assert value in str(error.value) and words in str(error.value)


# --- site file -----------------------------------------------------------------------------------------------------


def test_the_example_is_valid_and_complete() -> None:
    document = yaml.safe_load((ROOT / "config" / "topology.example.yaml").read_text())
    topology = from_document(document, NODES)
    assert topology.place("dgx03") == Place("leaf1", ("spine[1-2]",), (), "r02", ("pdu-a", "pdu-b1"), "row1")
    assert topology.unplaced == () and topology.tiers == 1
    assert ("pdu", "pdu-b1") in topology.loads["dgx03"]


def test_rails_stand_in_for_leaves() -> None:
    document = {
        "rails": {
            "mlx5_0": {"s0": "dgx[01-04]", "s2": "dgx[05-08]"},
            "mlx5_1": {"s1": "dgx[01-04]", "s3": "dgx[05-08]"},
        }
    }
    topology = from_document(document, NODES)
    assert topology.place("dgx01") == Place("s[0-1]", (), (("mlx5_0", "s0"), ("mlx5_1", "s1")))
    assert topology.loads["dgx08"] == (("leaf", "s[2-3]"), ("rail", "s2"), ("rail", "s3"))


def test_parts_only() -> None:
    topology = from_document({"zones": {"row1": "dgx[01-04]"}}, NODES)
    assert not topology.known and topology.place("dgx01").zone == "row1"
    assert from_document(None, NODES).source == "unknown"
    assert from_document({}, NODES).places == {}


@pytest.mark.parametrize(
    ("document", "key", "words"),
    [
        ([1], "topology", "a mapping with leaves"),
        ({"leafs": {}}, "topology", "leafs"),
        ({"leaves": {"leaf1": 3}}, "topology.leaves.leaf1", "a node set"),
        ({"leaves": {"leaf 1": "dgx01"}}, "topology.leaves", "letters, digits"),
        ({"leaves": {"leaf1": "dgx[01-"}}, "topology.leaves.leaf1", "correct the node set"),
        ({"leaves": {"a": "dgx01", "b": "dgx01"}}, "topology.leaves.b", "a has it"),
        ({"racks": {"a": "dgx01", "b": "dgx01"}}, "topology.racks.b", "a has it"),
        ({"rails": {"mlx5_0": {"a": "dgx01", "b": "dgx01"}}}, "topology.rails.mlx5_0.b", "a has it"),
        ({"leaves": {"a": "dgx01"}, "above": {"s": "b"}}, "topology.above.s", "define b"),
        ({"leaves": {"a": "dgx01"}, "above": {"s": "a,t", "t": "s"}}, "topology.above", "circle"),
        ({"leaves": {"a": "cpu[1-2]"}}, "topology", "cpu[1-2]"),
    ],
)
def test_documents_that_are_refused(document: object, key: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        from_document(document, NODES)
    assert error.value.key == key
    assert words in str(error.value)
    assert error.value.cure


@pytest.mark.parametrize("text", [TREE, BLOCK])
def test_what_slurm_says_can_be_written_to_a_file(text: str) -> None:
    topology = from_slurm(text, NODES)
    again = from_document(yaml.safe_load(yaml.safe_dump(topology.document())), NODES)
    assert again.places == topology.places


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(NODES),
        st.builds(
            Place,
            leaf=st.sampled_from([None, "leaf1", "leaf2"]),
            rack=st.sampled_from([None, "r1", "r2"]),
            pdus=st.sampled_from([(), ("a",), ("a", "b")]),
            zone=st.sampled_from([None, "z1"]),
        ).filter(lambda p: p != Place()),
    )
)
def test_documents_go_around(places: dict[str, Place]) -> None:
    topology = Topology(tuple(NODES), places, "file")
    assert from_document(topology.document(), NODES).places == places


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.sampled_from("SwitchNameBlock=NodesLvl[]-,0123 \n#dgx"), max_size=80))
def test_damaged_text_is_refused_or_unknown(text: str) -> None:
    for damaged in (text, TREE[: len(text) * 4] + text):
        try:
            topology = from_slurm(damaged, NODES)
        except ConfigError:
            continue
        assert set(topology.places) <= set(NODES)
