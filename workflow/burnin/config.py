# SPDX-License-Identifier: Apache-2.0
"""The configuration: read, validated by schema, checked for sense, resolved. Nothing runs before this has passed.

`resolve` turns what the user wrote into one self-contained document (files it names are read in); `Config` gives the
rest of the library typed access to that document.
"""

from __future__ import annotations

import difflib
import os
import shlex
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from burnin import storage
from burnin.errors import CampaignError, ConfigError
from burnin.isolation import repeats_for
from burnin.ladder import LadderConfig, steps
from burnin.nodes import expand
from burnin.topology import Topology, from_document

PLACEHOLDERS = frozenset(
    [
        "nodes",
        "nodelist",
        "gpus_per_node",
        "ntasks",
        "mpi",
        "hpl_dat",
        "checkpoint_dir",
        "run_dir",
        "iteration",
        "max_steps",
        "checkpoint_every",
        "global_batch_size",
        "micro_batch_size",
        "sequence_length",
        "tensor_parallel",
        "pipeline_parallel",
        "context_parallel",
    ]
)
#: placeholders whose values are optional keys of `training`
TRAINING_NUMBERS = frozenset(p for p in PLACEHOLDERS if p.endswith(("_parallel", "_size", "_length")))
PROBE_PLACEHOLDERS = frozenset(["nodes", "nodelist", "gpus_per_node", "mpi"])


@dataclass(frozen=True)
class Config:
    """A resolved configuration (`document` follows config.schema.json) and the repository it belongs to."""

    document: Mapping[str, Any]
    root: Path  # the repository: workflow/, lab/, config/
    folder: Path | None = None  # where the campaign was found, if it was read from its folder

    @cached_property
    def nodes(self) -> list[str]:
        """Return the nodes in config order."""
        return expand(self.document["nodes"])

    @cached_property
    def hcas(self) -> list[str]:
        """Return the fabric ports to read on every node."""
        return expand(self.document["hcas"], "hcas") if self.document["hcas"] else []

    @property
    def campaign(self) -> str:
        """Return the campaign's name."""
        return str(self.document["campaign"])

    @property
    def campaign_dir(self) -> Path:
        """Return the campaign's folder."""
        return self.folder or Path(self.document["results"]) / self.campaign

    @property
    def workloads(self) -> list[str]:
        """Return the workloads in config order."""
        return list(self.document["workloads"])

    def definition(self, workload: str) -> Mapping[str, Any]:
        """Return the entry of `workload_definitions`."""
        if workload == "diag":  # the retest of a repaired node: one command of its own, no launch line
            retest = self.document["retest"]
            return {
                "parser": "dcgmi-diag",
                "metric": "diag",
                "launch": "",
                "commands": {"diag": retest["command"]},
                "environment": {},
            }
        entry: Mapping[str, Any] = self.document["workload_definitions"][workload]
        return entry

    def window(self, workload: str, step: str, isolating: bool = False) -> dict[str, float]:
        """Return {'hours': h} or {'iterations': n} of a workload in a step. The resume test is one training job."""
        if step in ("resume", "retest"):
            return {"iterations": 1}
        if isolating and workload in self.short_windows:
            return dict(self.short_windows[workload])
        entry = self.document["windows"][workload]
        return dict(entry.get(step, entry["default"]))

    @property
    def short_windows(self) -> Mapping[str, Mapping[str, float]]:
        """Return the windows of workloads in isolation groups, where they are not those of the step."""
        return self.document["isolation"]["windows"] or {}

    @cached_property
    def ladder(self) -> LadderConfig:
        """Return what the ladder needs to know."""
        per_step: dict[str, tuple[str, ...]] = {}
        for step in steps(len(self.nodes)):
            if step.name == "resume":
                wanted = self.document["resume_test"]["workload"]
                per_step[step.name] = (wanted,) if wanted else ()
                continue
            names = [
                w
                for w in self.workloads
                if self.definition(w)["steps"] in ("all",) or step.name in self.definition(w)["steps"]
            ]
            per_step[step.name] = tuple(names)
        if self.document["retest"]:
            per_step["retest"] = ("diag",)
        section = self.document["isolation"]
        repeats = repeats_for(section["shows"], section["missed"])
        return LadderConfig(tuple(self.nodes), per_step, self.topology, repeats, frozenset(self.short_windows))

    @cached_property
    def topology(self) -> Topology | None:
        """Return which leaf, rack, PDU ... each node has, or None if nothing of it is known."""
        section = self.document["topology"]
        return from_document(section, self.nodes) if section else None

    @property
    def criteria(self) -> Mapping[str, Any]:
        """Return the pass criteria."""
        entry: Mapping[str, Any] = self.document["criteria"]
        return entry

    @cached_property
    def runs_digest(self) -> str:
        """Return the digest of what a run depends on: neither the criteria, nor who is told of it."""
        return storage.digest({k: v for k, v in self.document.items() if k not in ("criteria", "metrics", "notify")})

    @cached_property
    def criteria_digest(self) -> str:
        """Return the digest of the criteria."""
        return storage.digest(self.criteria)

    @property
    def lab_dir(self) -> Path:
        """Return the lab's state folder, absolute."""
        return self.campaign_dir.resolve() / "lab"

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return `base` with the campaign's PATH and lab variables: the environment of every command of the campaign."""
        result = dict(base)
        first = [str(self.root / p) for p in self.document["path_first"]]
        scenario = self.document["scenario"]
        if scenario:
            first.append(str(self.root / "lab" / "bin"))
            result["BURNIN_SCENARIO"] = str(scenario_path(self.root, scenario))
            result["BURNIN_LAB"] = str(self.lab_dir)
        parts = result.get("PATH", os.defpath).split(os.pathsep)
        result["PATH"] = os.pathsep.join([*first, *(p for p in parts if p not in first)])
        return result


def scenario_path(root: Path, scenario: str) -> Path:
    """Return the file of a scenario: a name from lab/scenarios, or a path."""
    named = root / "lab" / "scenarios" / f"{scenario}.yaml"
    return named if named.exists() else Path(scenario).resolve()


def load(raw: Mapping[str, Any], root: Path) -> Config:
    """Return the validated Config for what Snakemake merged from files and command line.

    `root` is the repository. Raises ConfigError naming key, value, expectation and cure.
    """
    document = dict(raw)
    for key in ("workload_definitions", "criteria", "topology"):
        document[key] = _read_section(key, document.get(key), root)
    criteria = document.get("criteria")
    if isinstance(criteria, Mapping) and isinstance(criteria.get("baselines"), str):
        document["criteria"] = {
            **criteria,
            "baselines": _read_section("criteria.baselines", criteria["baselines"], root),
        }
    for key in ("probes", "preflight", "evidence"):
        section = document.get(key)
        if isinstance(section, Mapping) and isinstance(section.get("commands"), Mapping):
            # files are merged key by key: null is how a second file takes a command of the first one out
            kept = {tool: line for tool, line in section["commands"].items() if line is not None}
            document[key] = {**section, "commands": kept}
    _check_schema(document)
    config = Config(document, root)
    _check_sense(config)
    return config


def whole_windows(merged: Mapping[str, Any], files: Sequence[Path | str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merged config with each window as the last layer that names it has it.

    Snakemake merges files key by key, which makes {hours, iterations} of {iterations} and a later {hours}; a window is one
    value. A later `default` also takes the place of the steps that earlier layers name: a validation laid over a burn-in
    must not keep its hours. `files` in the order in which they are laid over each other; `given`: --config.
    """
    windows: dict[str, dict[str, Any]] = {}
    layers = [storage.parse_yaml(Path(f).read_text(encoding="utf-8")) for f in files]
    for layer in [*layers, given]:
        later = layer.get("windows") if isinstance(layer, Mapping) else None
        if later is not None and not isinstance(later, Mapping):
            return dict(merged)  # the schema says what is wrong with it
        for workload, entry in (later or {}).items():
            if not isinstance(entry, Mapping):
                return dict(merged)
            windows[workload] = {**({} if "default" in entry else windows.get(workload, {})), **entry}
    return {**merged, "windows": windows} if windows else dict(merged)


def from_files(files: Sequence[Path], root: Path, given: Mapping[str, Any] | None = None) -> Config:
    """Return the Config of files laid over config/config.yaml in their order, as Snakemake lays --configfile.

    `given` is laid over them, as --config is. Raises ConfigError for what cannot be read or is not valid.
    """
    from snakemake.utils import update_config

    layers = [root / "config" / "config.yaml", *(f.resolve() for f in files)]
    merged: dict[str, Any] = {}
    for file in layers:
        content = _read_section("--configfile", str(file), root)
        if not isinstance(content, Mapping):
            raise ConfigError("--configfile", str(file), "a YAML file with keys of the config", "correct the file")
        update_config(merged, content)
    given = given or {}
    update_config(merged, given)
    return load(whole_windows(merged, layers, given), root)


def from_text(text: str, root: Path) -> Config:
    """Return the Config of a text laid over config/config.yaml. Raises ConfigError if it is not valid."""
    return from_files([], root, storage.parse_yaml(text))


def from_file(campaign_dir: Path) -> Config:
    """Return the Config that a campaign runs with (results/<campaign>/config.json).

    Raises FileNotFoundError, or CampaignError if another version of burnin wrote it.
    """
    seen = (campaign_dir / "config.json").stat()
    return _stored(campaign_dir, Path.cwd(), (seen.st_ino, seen.st_mtime_ns, seen.st_size))


@lru_cache(maxsize=4)
def _stored(campaign_dir: Path, cwd: Path, seen: tuple[int, int, int]) -> Config:
    """Return the Config of the file as it was `seen` (a head asks once for each of a thousand runs)."""
    stored = storage.read_json(campaign_dir / "config.json", "stored_config")
    try:
        _check_schema(stored["config"])
    except ConfigError as error:
        raise CampaignError(
            f"{campaign_dir / 'config.json'} is of another version of burnin: {error.key} is not as expected",
            "start snakemake for this campaign once (-n is not enough): it writes the file anew",
        ) from None
    # `results` may be relative to where snakemake was started; an operator's command may run anywhere
    return Config(stored["config"], Path(stored["root"]), campaign_dir)


def _read_section(key: str, value: Any, root: Path) -> Any:
    """Return the content of a section that may be given as a file name."""
    if not isinstance(value, str):
        return value
    import yaml

    path = Path(value) if Path(value).is_absolute() else root / value
    try:
        content = storage.parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(key, value, "a readable YAML file", f"correct the path ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(key, value, "a YAML file", f"correct its syntax ({str(error)[:200]})") from None
    return content


def criteria_files(raw: Mapping[str, Any], root: Path) -> list[Path]:
    """Return the files that the criteria come from: their own, and that of the baselines, as far as they are files."""
    given = raw.get("criteria")
    criteria = _read_section("criteria", given, root)
    based = criteria.get("baselines") if isinstance(criteria, Mapping) else None
    return [root / name for name in (given, based) if isinstance(name, str)]


def _check_schema(document: Mapping[str, Any]) -> None:
    """Raise ConfigError for the first violation of config.schema.json, in the words of the config."""
    from jsonschema.exceptions import best_match

    error = best_match(storage.validator("config").iter_errors(document))
    if error is None:
        return
    key = ".".join(str(p) for p in error.absolute_path)
    if error.validator == "additionalProperties" and isinstance(error.schema.get("properties"), dict):
        known = sorted(error.schema["properties"])
        unknown = sorted(set(error.instance) - set(known))[0]
        close = difflib.get_close_matches(unknown, known, 1)
        hint = f"did you mean '{close[0]}'?" if close else "remove it"
        name = f"{key}.{unknown}" if key else unknown
        raise ConfigError(name, error.instance[unknown], f"one of the keys {', '.join(known)}", hint)
    if error.validator == "required":
        missing = error.message.split("'")[1]
        raise ConfigError(
            f"{key}.{missing}" if key else missing, None, "a value", "add the key (see config/config.yaml)"
        )
    expected = error.schema.get("description") or _expectation(error)
    raise ConfigError(
        key or "(top)", error.instance, expected, "correct the value (config/config.yaml explains the key)"
    )


def _expectation(error: Any) -> str:
    """Return in words what a schema node wants."""
    schema, kind = error.schema, error.validator
    if kind == "type":
        wanted = schema["type"]
        return " or ".join(wanted) if isinstance(wanted, list) else f"a value of type {wanted}"
    if kind == "enum":
        return "one of " + ", ".join(map(str, schema["enum"]))
    words = {
        "minimum": "at least",
        "maximum": "at most",
        "exclusiveMinimum": "more than",
        "minLength": "a text of length at least",
    }
    if kind in words:
        return f"{words[kind]} {schema[kind]}"
    return str(error.message)[:200]


def _check_sense(config: Config) -> None:
    """Raise ConfigError for values that are well-formed but cannot be meant."""
    document = config.document
    nodes = config.nodes
    _ = config.hcas, config.topology
    for number, workload in enumerate(config.workloads):
        if workload not in document["workload_definitions"]:
            known = ", ".join(document["workload_definitions"])
            raise ConfigError(
                f"workloads.{number}", workload, f"a name from workload_definitions ({known})", "correct or define it"
            )
        if workload not in document["windows"]:
            raise ConfigError(
                f"windows.{workload}", None, "a window for every workload", f"add windows.{workload}.default"
            )
    for workload in config.short_windows:
        if workload not in config.workloads:
            raise ConfigError(
                f"isolation.windows.{workload}",
                config.short_windows[workload],
                f"one of `workloads` ({', '.join(config.workloads)})",
                "remove it",
            )
    step_names = {s.name for s in steps(len(nodes))}
    for workload, entry in document["windows"].items():
        for step in entry:
            if step != "default" and step not in step_names:
                raise ConfigError(
                    f"windows.{workload}.{step}",
                    entry[step],
                    f"a step of this ladder ({', '.join(s.name for s in steps(len(nodes)))})",
                    "remove it",
                )
    wanted = document["resume_test"]["workload"]
    if wanted and wanted not in config.workloads:
        raise ConfigError(
            "resume_test.workload", wanted, "one of `workloads`, or null", "set it to null or add the workload"
        )
    if wanted and "training" not in config.definition(wanted):
        raise ConfigError(
            "resume_test.workload", wanted, "a workload with a `training` section", "only training can be resumed"
        )
    for workload in config.workloads:
        _check_definition(config, workload)
    for tool, line in document["probes"]["commands"].items():
        check_template(f"probes.commands.{tool}", line, frozenset(["hca"]))
    for name, line in document["probes"]["once"].items():
        check_template(f"probes.once.{name}", line, frozenset(["nodes", "nodelist"]))
    for tool, line in document["preflight"]["commands"].items():
        check_template(f"preflight.commands.{tool}", line, frozenset(["hca"]))
    if document["evidence"]:
        check_template("evidence.launch", document["evidence"]["launch"], frozenset(["node"]))
        for tool, line in document["evidence"]["head_commands"].items():
            check_template(f"evidence.head_commands.{tool}", line, frozenset(["node"]))
        for tool, line in document["evidence"]["commands"].items():
            check_template(f"evidence.commands.{tool}", line, frozenset(["hca", "folder"]))
    for workload, line in document["preflight"]["dry_runs"].items():
        if workload not in document["workload_definitions"]:
            raise ConfigError(f"preflight.dry_runs.{workload}", line, "the name of a workload", "correct or remove it")
        check_template(f"preflight.dry_runs.{workload}", line, PLACEHOLDERS | {"node"})
    if document["preflight"]["fabric"]:
        check_template("preflight.fabric", document["preflight"]["fabric"], frozenset())
    if document["retest"]:
        check_template("retest.command", document["retest"]["command"], frozenset(["node"]))
    check_template("probes.launch", document["probes"]["launch"], PROBE_PLACEHOLDERS)
    if document["scenario"] and not scenario_path(config.root, document["scenario"]).is_file():
        known = ", ".join(sorted(p.stem for p in (config.root / "lab" / "scenarios").glob("*.yaml")))
        raise ConfigError(
            "scenario",
            document["scenario"],
            f"a file, or one of {known}",
            "correct the name, or null for a real cluster",
        )


def _check_definition(config: Config, workload: str) -> None:
    """Check one workload's templates and numbers."""
    definition = config.definition(workload)
    where = f"workload_definitions.{workload}"
    check_template(f"{where}.launch", definition["launch"], PLACEHOLDERS)
    for name, line in definition["commands"].items():
        used = check_template(f"{where}.commands.{name}", line, PLACEHOLDERS)
        if "hpl_dat" in used and "hpl" not in definition:
            raise ConfigError(f"{where}.hpl", None, "memory and block size for {hpl_dat}", "add the section hpl")
        if used & {"max_steps", "checkpoint_every", "checkpoint_dir"} and "training" not in definition:
            raise ConfigError(f"{where}.training", None, "the training's numbers", "add the section training")
        for number in sorted(used & TRAINING_NUMBERS):
            if number not in definition.get("training", {}):
                raise ConfigError(f"{where}.training.{number}", None, f"the value of {{{number}}}", "add the key")
    training = definition.get("training")
    if training and training["checkpoint_every"] >= training["max_steps"]:
        raise ConfigError(
            f"{where}.training.checkpoint_every",
            training["checkpoint_every"],
            f"less than max_steps ({training['max_steps']})",
            "save more often, or train longer: a run without a checkpoint tests no storage",
        )


def check_template(key: str, text: str, allowed: frozenset[str]) -> set[str]:
    """Return the placeholders of a command template. Raises ConfigError for unknown ones and unbalanced quotes."""
    try:
        tokens = shlex.split(text)
        fields = [
            f for t in tokens for _, f, spec, conv in string.Formatter().parse(t) if f is not None or spec or conv
        ]
    except ValueError as error:
        raise ConfigError(
            key, text, "a command line with balanced quotes and braces", f"correct it ({error})"
        ) from None
    if not tokens:
        raise ConfigError(key, text, "a command line", "name a command")
    unknown = sorted({str(f) for f in fields} - allowed)
    if unknown:
        raise ConfigError(
            key, text, f"placeholders out of {', '.join(sorted(allowed))}", f"remove or correct {{{unknown[0]}}}"
        )
    return {str(f) for f in fields}


def render(text: str, values: Mapping[str, object]) -> list[str]:
    """Return the argument list of a template: split first, filled in then, so a value is never split nor interpreted."""
    return [token.format_map(values) for token in shlex.split(text)]
