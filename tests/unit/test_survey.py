# SPDX-License-Identifier: Apache-2.0
"""`burnin init`: what Slurm says becomes a config that is valid, and what it does not say is said."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from burnin import cli, survey
from burnin.arithmetic import load_references
from burnin.config import Config, from_text
from burnin.errors import CampaignError
from burnin.plan_check import check_config
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = {k: (ROOT / "config" / f).read_text() for k, f in (("gpu", "dgx-h100.yaml"), ("cpu", "cpu.yaml"))}

# Slurm 22.05.8, recorded on a cluster of its own (Debian 12): no topology, GPUs without a type, no accounting enforced.
NODE_2205 = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=1.45 AvailableFeatures=(null) "
    "ActiveFeatures=(null) Gres={gres} NodeAddr=10.82.0.1 NodeHostName={name} Port=16818 Version=22.05.8 OS=Linux 6.18.44 "
    "#1 SMP PREEMPT_DYNAMIC @0  RealMemory=512000 AllocMem=0 FreeMem=21966 Sockets=64 Boards=1 State={state} "
    "ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions={partitions}  "
    "BootTime=2026-11-30T19:17:13 SlurmdStartTime=2026-11-30T19:17:16 LastBusyTime=2026-11-30T19:17:16 "
    "CfgTRES=cpu=64,mem=500G,billing=64,gres/gpu=8 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 "
    "ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s{reason}"
)
PARTITION_2205 = (
    "PartitionName=batch AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A "
    "DefaultTime=01:00:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED "
    "MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=dgx[01-04] PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO "
    "OverSubscribe=NO OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=256 TotalNodes=4 SelectTypeParameters=NONE "
    "JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=256,mem=2000G,node=4,billing=256,gres/gpu=32"
)
CONFIG_2205 = """Configuration data as of 2026-11-30T19:17:16
AccountingStorageEnforce = none
ClusterName             = lab
EnforcePartLimits       = NO
SLURM_VERSION           = 22.05.8
"""
MPI_2205 = (
    "MPI plugin types are...\n\tpmix\n\tnone\n\tcray_shasta\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n"
)
MPI_2002 = "srun: MPI types are...\nsrun: cray_shasta\nsrun: none\nsrun: pmi2\n"  # on stderr, without pmix
TREE = """SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=dgx[01-02]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=dgx[03-04]
SwitchName=spine Level=1 LinkSpeed=1 Nodes=dgx[01-04] Switches=leaf[1-2]
"""


def node(name: str, gres: str = "gpu:8", state: str = "IDLE", partitions: str = "batch", reason: str = "") -> str:
    told = f" Reason={reason} [root@2026-01-09T04:11:52]" if reason else ""
    return NODE_2205.format(name=name, gres=gres, state=state, partitions=partitions, reason=told)


def answers(**changes: str | None) -> dict[str, str | None]:
    plain = {
        "nodes": "\n".join(node(f"dgx{i:02d}") for i in range(1, 5)) + "\n",
        "partitions": PARTITION_2205 + "\n",
        "config": CONFIG_2205,
        "topology": None,
        "mpi": MPI_2205,
    }
    return {**plain, **changes}


def written(given: dict[str, str | None], **options: Any) -> tuple[Config, str, str]:
    """Return the config that is written, its text, and all that is said beside it."""
    found = survey.read(given)
    choice = survey.choose(found, **options)
    text, unknown = survey.write(found, choice, load_references(), TEMPLATES)
    config = from_text(text, ROOT)
    check_config(config)
    return config, text, "\n".join([*choice.notes, *found.trouble, *unknown])


def test_slurm_22_05_as_recorded() -> None:
    config, text, said = written(answers())
    document = config.document
    assert config.nodes == ["dgx01", "dgx02", "dgx03", "dgx04"]
    assert document["gpus_per_node"] == 8 and document["campaign"] == "lab-first"
    assert document["slurm"]["partition"] == "batch" and document["slurm"]["partition_limit_minutes"] is None
    assert document["slurm"]["mpi"] == "pmix" and document["scenario"] is None
    assert config.window("nccl", "full") == {"hours": 12}
    assert "the model of the GPUs" in said and "leaf switches" in said
    assert "22.05.8" in text and "CHANGE" in text


def test_types_limits_topology_and_accounts_are_taken_over() -> None:
    # 24.05 has new words in each record; 23.11 and later write AllowQos and ExclusiveTopo, Gres with sockets
    nodes = "\n".join(node(f"dgx{i:02d}", "gpu:h100:8(S:0-1),shard:h100:64(S:0-1)") for i in range(1, 5))
    partition = PARTITION_2205.replace("ExclusiveUser=NO", "ExclusiveUser=NO ExclusiveTopo=NO").replace(
        "MaxTime=UNLIMITED", "MaxTime=08:00:00"
    )
    config, text, said = written(
        answers(
            nodes=nodes,
            partitions=partition.replace("AllowAccounts=ALL", "AllowAccounts=hpc,bringup"),
            topology=TREE,
            config=CONFIG_2205.replace("= none", "= associations,limits,qos"),
        )
    )
    assert config.document["workload_definitions"]["hpl"]["hpl"]["gpu_memory_mib"] == 81559
    assert config.document["slurm"]["partition_limit_minutes"] == 480
    # 12 hours do not fit into 8: what fits with half an hour of margin
    assert config.window("nccl", "single") == {"hours": 7.5} and config.window("hpl", "single") == {"hours": 4}
    assert config.topology is not None and config.topology.place("dgx03").leaf == "leaf2"
    assert "only takes the accounts hpc,bringup" in said and "slurm.account" in said
    assert "its limit allows 7.5 h, 12 are usual" in text and "model of the GPUs" not in said


def test_a_block_topology_and_a_cut_one() -> None:
    block = "BlockName=b1 BlockIndex=0 Nodes=dgx[01-02] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=dgx[03-04] BlockSize=2\n"
    config, *_ = written(answers(topology=block))
    assert config.topology is not None and config.topology.place("dgx01").leaf == "b1"
    config, _, said = written(answers(topology="SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=dgx[01-0\n"))
    assert config.topology is None and "the topology: " in said


def test_like_nodes_are_taken_and_the_others_said() -> None:
    nodes = [node("head01", "(null)", partitions="head,batch"), node("old1", "gpu:v100:4"), node("old2", "gpu:v100:4")]
    nodes += [node(f"dgx{i:02d}", "gpu:h100:8(S:0-1)") for i in range(1, 4)]
    nodes.append(node("dgx04", "gpu:h100:8", "DOWN+DRAIN+NOT_RESPONDING", reason="PSU2 dead"))
    partition = PARTITION_2205.replace("MaxNodes=UNLIMITED", "MaxNodes=2").replace("State=UP", "State=DRAIN")
    config, _, said = written(answers(nodes="\n".join(nodes), partitions=partition))
    assert config.nodes == ["dgx01", "dgx02", "dgx03", "dgx04"]
    for words in ("head01 left out: 0 GPUs", "old[1-2] left out: 4 GPUs (v100)", "dgx04 is DOWN", "PSU2 dead"):
        assert words in said
    assert "allows 2 nodes a job, the step full needs 4" in said and "is not UP" in said
    config, *_ = written(answers(nodes="\n".join(nodes)), nodes="old[1-2]")
    assert config.nodes == ["old1", "old2"] and config.document["gpus_per_node"] == 4


def test_of_several_partitions_the_one_with_most_gpus_or_the_one_named() -> None:
    nodes = [node(f"cpu{i}", "(null)", partitions="cpu") for i in range(9)]
    nodes += [node(f"dgx{i}", "gpu:h100:8", partitions="gpu,all") for i in (1, 2)]
    partitions = "\n".join(PARTITION_2205.replace("=batch", f"={n}") for n in ("cpu", "gpu", "all"))
    given = answers(nodes="\n".join(nodes), partitions=partitions)
    config, _, said = written(given)
    assert config.document["slurm"]["partition"] in ("gpu", "all") and "there are also" in said
    config, _, said = written(given, partition="cpu")
    assert config.document["gpus_per_node"] == 0 and len(config.nodes) == 9
    assert config.document["slurm"]["partition"] == "cpu" and "CPU nodes" in said
    with pytest.raises(CampaignError, match="no partition 'none'"):
        written(given, partition="none")
    with pytest.raises(CampaignError, match="no node dgx9"):
        written(given, nodes="dgx9")


@pytest.mark.parametrize(
    "name", ["x;reboot", "$(reboot)", "-J", "a b", "x'\"y", "../../etc", "!!python/object:os.system", "n\x07x"]
)
def test_hostile_names_never_reach_the_file(name: str) -> None:
    nodes = "\n".join([node("dgx01"), node(name), node("dgx02", reason="# x\x1b[31m: {evil: 1}\u2028y")])
    partitions = PARTITION_2205.replace("=batch", "=b'a\"t:{c}#h")
    given = answers(
        nodes=nodes.replace("Partitions=batch", "Partitions=b'a\"t:{c}#h"),
        partitions=partitions,
        config=CONFIG_2205.replace("= lab", "= ../x\x1b;"),
        topology="SwitchName=\x1b]0;evil Level=0 LinkSpeed=1 Nodes=dgx[01-02]\n",
    )
    config, text, _ = written(given)
    assert set(config.nodes) <= {"dgx01", "dgx02"} and "dgx01" in config.nodes
    assert config.document["slurm"]["partition"] in ("b'a\"t:{c}#h", None)
    assert config.document["campaign"] == "x-first"
    assert text.isascii() and all(c == "\n" or c.isprintable() for c in text)
    assert yaml.safe_load(text)["scenario"] is None


def test_an_odd_number_of_gpus_a_short_limit_and_missing_answers() -> None:
    config, _, said = written(answers(nodes=node("n1", "gpu:1"), partitions=None, config=None, mpi=None))
    assert config.document["workload_definitions"]["nemo"]["training"]["context_parallel"] == 1
    assert config.document["slurm"]["partition"] is None
    for words in ("scontrol show partition", "scontrol show config", "srun --mpi=list", "the MPI plugin"):
        assert words in said
    config, *_ = written(answers(partitions=PARTITION_2205.replace("MaxTime=UNLIMITED", "MaxTime=01:00:00")))
    assert config.window("nemo", "full") == {"hours": 0.5}
    with pytest.raises(CampaignError, match="no burn-in fits"):
        written(answers(partitions=PARTITION_2205.replace("MaxTime=UNLIMITED", "MaxTime=00:30:00")))
    with pytest.raises(CampaignError, match="no node"):
        written(answers(nodes="slurm_load_node error: Unable to contact slurm controller\n"))


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:8", (8, "")), ("gpu:h100:8(S:0-1)", (8, "h100")), ("gpu", (1, "")), ("(null)", (0, "")), (None, (0, "")),
        ("gpu:a100:4(S:0),gpu:a100:4(S:1)", (8, "a100")), ("gpu:a100:6,gpu:1g.10gb:14", (14, "1g.10gb")),
        ("gpu:tesla:no_consume:2", (2, "tesla")), ("mps:800,gpu:b200:8(IDX:0-7),nic:8", (8, "b200")),
    ],
)  # fmt: skip
def test_gres(text: str | None, gpus: tuple[int, str]) -> None:
    assert survey.gpus_of(text) == gpus


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("7-00:00:00", 10080),
        ("1-12", 2160),
        ("08:30:00", 510),
        ("90", 90),
        ("15:30", 15),
        ("UNLIMITED", None),
        ("", None),
    ],
)
def test_time_limits(text: str, minutes: int | None) -> None:
    assert survey.minutes_of(text) == minutes


def test_srun_of_old_versions_prints_its_list_to_stderr() -> None:
    config, *_ = written(answers(mpi=MPI_2002))
    assert config.document["slurm"]["mpi"] == "pmi2"


def test_a_template_that_lost_a_key_is_not_filled_in_silently() -> None:
    with pytest.raises(KeyError, match="nodes"):
        survey.fill("# head\n\ncampaign: x\n", {"nodes": ("a", None)}, [])


def test_the_command_writes_what_snakemake_takes_and_overwrites_nothing(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    given = answers(topology=TREE)
    for key, words in (
        ("nodes", "-o show node"),
        ("partitions", "-o show partition"),
        ("config", "show config"),
        ("topology", "show topology"),
    ):
        (tmp_path / key).write_text(given[key] or "")
        with (tools / "scontrol").open("a") as script:
            script.write(
                ("" if script.tell() else "#!/bin/sh\n") + f'[ "$*" = "{words}" ] && exec cat {tmp_path / key}\n'
            )
    (tools / "srun").write_text(f"#!/bin/sh\nprintf '%s' '{MPI_2002}' >&2\n")
    for tool in tools.iterdir():
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    environment = {**os.environ, "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    site = tmp_path / "site.yaml"
    done = subprocess.run(["burnin", "init", str(site)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "found 4 nodes with 8 GPUs: dgx[01-04]" in done.stderr and "not found: " in done.stderr
    again = subprocess.run(["burnin", "init", str(site)], env=environment, capture_output=True, text=True, check=False)
    assert again.returncode == 1 and "nothing is overwritten" in again.stderr
    dry = subprocess.run(
        ["snakemake", "--profile", "slurm", "-n", "--configfile", str(site), "--config", f"results={tmp_path / 'r'}"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert dry.returncode == 0, dry.stderr
    assert "dgx01x4-" in dry.stdout + dry.stderr


def test_without_slurm_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(cli.cli, ["init", "-"])
    assert isinstance(done.exception, CampaignError) and "no scontrol here" in str(done.exception)
