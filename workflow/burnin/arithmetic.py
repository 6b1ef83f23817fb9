# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a training run: batches, parallelism, ranks, throughput, and like-for-like comparison.

    GPUs = TP x PP x CP x DP          tokens per step  = GBS x sequence
    GA   = GBS / (MBS x DP)           tokens/s/GPU     = GBS x sequence / (step time x GPUs)

Model TFLOPS per GPU = FLOPs per token x tokens/s/GPU. FLOPs per token is 6 per parameter that takes part in a matrix
product (2 forward, 4 backward), plus attention, whose two products (scores, values) cost 12 x layers x hidden x
sequence per token when the whole score matrix is counted. NVIDIA's NeMo counts the whole matrix (README files of
NVIDIA/dgxc-benchmarking: `12 x layers x hidden^2 x (1 + groups/heads + sequence/hidden)`), Megatron-Bridge the half
that a causal mask leaves: figures of the two are not comparable. For Llama 3 8B at 8192 tokens NeMo's count is
57.9 GFLOP per token, 20 % above the usual estimate of 6 x 8.03 billion.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from burnin import storage
from burnin.errors import ConfigError

REFERENCES = Path(__file__).resolve().parents[2] / "config" / "references.yaml"

Attention = Literal["none", "full", "causal"]


# ------------------------------------------------------------------------------------------- parallelism and batches


def check_parallelism(gpus: int, gpus_per_node: int, tp: int, pp: int = 1, cp: int = 1) -> None:
    """Refuse a split that does not fit: TP across nodes, or GPUs not a multiple of TP x PP x CP.

    Raises ConfigError with the sizes. TP must divide the GPUs of a node, because ranks fill nodes in order: TP 3 on
    8-GPU nodes puts one group of three on two nodes.
    """
    for key, value in (("gpus", gpus), ("gpus_per_node", gpus_per_node), ("tp", tp), ("pp", pp), ("cp", cp)):
        if value < 1:
            raise ConfigError(key, value, "at least 1", f"set {key} to 1 or more")
    if tp > gpus_per_node or gpus_per_node % tp:
        raise ConfigError(
            "tp",
            tp,
            f"a divisor of the {gpus_per_node} GPUs of a node, so that TP stays inside its NVLink domain",
            f"use TP {_largest_divisor(gpus_per_node, tp)} and split further with PP or CP; across nodes it would "
            "measure the wrong thing",
        )
    if gpus % (tp * pp * cp):
        raise ConfigError(
            "tp x pp x cp",
            f"{tp} x {pp} x {cp} = {tp * pp * cp}",
            f"a divisor of the {gpus} GPUs of the group",
            "choose sizes whose product divides the GPUs of every group of the ladder",
        )


def _largest_divisor(number: int, at_most: int) -> int:
    return max(d for d in range(1, min(number, at_most) + 1) if number % d == 0)


def data_parallel(gpus: int, tp: int, pp: int, cp: int) -> int:
    """Return DP = GPUs / (TP x PP x CP). Raises ConfigError with the sizes if it is not whole."""
    if min(gpus, tp, pp, cp) < 1 or gpus % (tp * pp * cp):
        raise ConfigError(
            "tp x pp x cp",
            f"{tp} x {pp} x {cp} = {tp * pp * cp}",
            f"a divisor of the {gpus} GPUs of the group",
            "choose sizes whose product divides the GPUs of every group of the ladder",
        )
    return gpus // (tp * pp * cp)


def gradient_accumulation(gbs: int, mbs: int, dp: int) -> int:
    """Return GA = GBS / (MBS x DP). Raises ConfigError naming the sizes, and the nearest GBS that fit, if not whole."""
    if min(gbs, mbs, dp) < 1:
        raise ConfigError("gbs, mbs, dp", f"{gbs}, {mbs}, {dp}", "all at least 1", "correct the sizes")
    step = mbs * dp
    if gbs % step:
        below, above = gbs // step * step, -(-gbs // step) * step
        fitting = f"{above}" if below == 0 else f"{below} or {above}"
        raise ConfigError(
            "gbs",
            gbs,
            f"a multiple of MBS x DP = {mbs} x {dp} = {step} (GA would be {gbs / step:.2f}, it must be whole)",
            f"use GBS {fitting}, or another split",
        )
    return gbs // step


@dataclass(frozen=True, slots=True)
class BatchMath:
    """What a recipe becomes on a number of GPUs. `tokens_per_step` counts all GPUs."""

    gpus: int
    dp: int
    ga: int
    tokens_per_step: int


def batch_math(
    gpus: int, gpus_per_node: int, gbs: int, mbs: int, seq: int, tp: int = 1, pp: int = 1, cp: int = 1
) -> BatchMath:
    """Return DP, GA and tokens per step, or raise ConfigError if anything does not fit."""
    check_parallelism(gpus, gpus_per_node, tp, pp, cp)
    dp = data_parallel(gpus, tp, pp, cp)
    return BatchMath(gpus, dp, gradient_accumulation(gbs, mbs, dp), tokens_per_step(gbs, seq))


def tokens_per_step(gbs: int, seq: int) -> int:
    """Return GBS x sequence length (tokens)."""
    return gbs * seq


def tokens_per_second_per_gpu(gbs: int, seq: int, step_seconds: float, gpus: int) -> float:
    """Return tokens/s/GPU. Raises ValueError if the step time or the number of GPUs is not positive."""
    if not step_seconds > 0 or gpus < 1:
        raise ValueError(f"step time {step_seconds} s on {gpus} GPUs gives no throughput")
    return gbs * seq / (step_seconds * gpus)


def seconds_per_step(gbs: int, seq: int, tokens_per_s_per_gpu: float, gpus: int) -> float:
    """Return the step time (s) that a throughput means; the inverse of `tokens_per_second_per_gpu`."""
    if not tokens_per_s_per_gpu > 0 or gpus < 1:
        raise ValueError(f"{tokens_per_s_per_gpu} tokens/s/GPU on {gpus} GPUs gives no step time")
    return gbs * seq / (tokens_per_s_per_gpu * gpus)


# --------------------------------------------------------------------------------------------------- ranks and nodes


def place_of_rank(rank: int, nodes: Sequence[str], gpus_per_node: int) -> tuple[str, int]:
    """Return (node, GPU index) of a global rank; `nodes` in rank order, as the run was started.

    Rank 37 on dgx[01-08] with 8 GPUs each is node index 4, dgx05, GPU 5. Raises ValueError for a rank that the run did
    not have: an impossible rank must not blame some node.
    """
    if not 0 <= rank < len(nodes) * gpus_per_node:
        raise ValueError(f"rank {rank} does not exist in a run of {len(nodes)} nodes x {gpus_per_node} GPUs")
    return nodes[rank // gpus_per_node], rank % gpus_per_node


def ranks_of_node(node: str, nodes: Sequence[str], gpus_per_node: int) -> range:
    """Return the global ranks of a node. Raises ValueError if it is not in the list."""
    first = nodes.index(node) * gpus_per_node
    return range(first, first + gpus_per_node)


# -------------------------------------------------------------------------------------------------------- throughput


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What decides the work of one token. `parameters` includes the input embedding."""

    parameters: int
    layers: int
    hidden: int
    ffn: int
    heads: int
    query_groups: int
    vocab: int
    gated: bool = True
    source: str = ""

    @property
    def matrix_parameters(self) -> int:
        """Return the parameters in matrix products: attention, MLP and output layer, not the input embedding."""
        attention = 2 * self.hidden**2 + 2 * self.hidden**2 * self.query_groups // self.heads
        mlp = (3 if self.gated else 2) * self.hidden * self.ffn
        return self.layers * (attention + mlp) + self.hidden * self.vocab

    def flops_per_token(self, seq: int, attention: Attention = "full") -> float:
        """Return the FLOPs of training on one token of a sequence of `seq` tokens.

        `none`: 6 x all parameters, the rule of thumb. `full`: 6 x matrix parameters plus the whole attention matrix, as
        NeMo logs it. `causal`: half of the attention matrix, as Megatron-Bridge logs it.
        """
        if attention == "none":
            return 6.0 * self.parameters
        scores = 12.0 * self.layers * self.hidden * seq
        return 6.0 * self.matrix_parameters + (scores if attention == "full" else scores / 2)


def model_tflops_per_gpu(tokens_per_s_per_gpu: float, flops_per_token: float) -> float:
    """Return model TFLOPS per GPU."""
    return tokens_per_s_per_gpu * flops_per_token / 1e12


def mfu(tflops_per_gpu: float, peak_tflops: float) -> float:
    """Return model FLOPs utilisation as a fraction of the dense peak. Raises ValueError if the peak is not positive."""
    if not peak_tflops > 0:
        raise ValueError(f"peak of {peak_tflops} TFLOPS")
    return tflops_per_gpu / peak_tflops


# -------------------------------------------------------------------------------------------------------- references


@dataclass(frozen=True, slots=True)
class GpuType:
    """Dense peaks (TFLOPS) by precision, and memory (MiB) of one GPU."""

    name: str
    memory_mib: float
    peak_tflops: Mapping[str, float]
    source: str

    def peak(self, precision: str) -> float:
        """Return the dense peak (TFLOPS). Raises KeyError with the known precisions if there is none."""
        key = precision_name(precision)
        if key not in self.peak_tflops:
            raise KeyError(f"no dense peak of {self.name} in {precision}; known: {', '.join(sorted(self.peak_tflops))}")
        return self.peak_tflops[key]


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """One training result, published or measured. None = not known; throughput as tokens/s/GPU or seconds per step."""

    model: str
    gpu: str | None
    gpus: int
    framework: str | None = None
    container: str | None = None
    precision: str | None = None
    global_batch: int | None = None
    micro_batch: int | None = None
    sequence: int | None = None
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    vp: int | None = None
    tokens_per_s_per_gpu: float | None = None
    tflops_per_gpu: float | None = None
    step_seconds: float | None = None
    source: str = ""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> TrainingRun:
        """Return the run of a mapping with these keys; others are ignored."""
        return cls(**{f.name: document[f.name] for f in fields(cls) if f.name in document})

    @property
    def throughput(self) -> float | None:
        """Return tokens/s/GPU, computed from the step time if need be, or None if that is not possible."""
        if self.tokens_per_s_per_gpu is not None:
            return self.tokens_per_s_per_gpu
        if self.step_seconds is None or self.global_batch is None or self.sequence is None:
            return None
        return tokens_per_second_per_gpu(self.global_batch, self.sequence, self.step_seconds, self.gpus)


def _is_gpu(key: str, name: str) -> bool:
    return bool(re.search(rf"(?<![A-Za-z0-9]){re.escape(key)}(?![0-9])", name, re.IGNORECASE))


@dataclass(frozen=True, slots=True)
class References:
    """Everything of config/references.yaml."""

    gpus: Mapping[str, GpuType]
    models: Mapping[str, ModelShape]
    rows: tuple[TrainingRun, ...]

    def gpu_type(self, name: str) -> GpuType | None:
        """Return the type of a GPU from the name that a tool prints ("NVIDIA H100 80GB HBM3"), or None."""
        for key in sorted(self.gpus, key=len, reverse=True):
            if _is_gpu(key, name):
                return self.gpus[key]
        return None


def references_from(document: Mapping[str, Any]) -> References:
    """Return the references of a parsed references.yaml. Raises ConfigError naming the key if it breaks the schema."""
    error = next(iter(storage.validator("references").iter_errors(document)), None)
    if error is not None:
        key = ".".join(["references", *(str(p) for p in error.absolute_path)])
        raise ConfigError(key, error.instance, error.message[:200], "correct the key in the reference data")
    rows = tuple(TrainingRun.of(row) for row in document["rows"])
    for number, row in enumerate(rows):
        if row.gpu not in document["gpus"]:
            raise ConfigError(f"references.rows.{number}.gpu", row.gpu, "a key of references.gpus", "add the GPU type")
    return References(
        gpus={name: GpuType(name=name, **entry) for name, entry in document["gpus"].items()},
        models={name: ModelShape(**entry) for name, entry in document["models"].items()},
        rows=rows,
    )


def load_references(path: Path = REFERENCES) -> References:
    """Read the references from a file; see `references_from` for errors."""
    return references_from(storage.parse_yaml(path.read_text(encoding="utf-8")))


def precision_name(text: str) -> str:
    """Return `bf16`, `fp8`, ... of what recipes and people write ("bf16-mixed", "FP8", "bf16_with_fp8_mixed")."""
    lower = text.lower()
    for known in ("nvfp4", "mxfp8", "fp8", "bf16", "fp16", "fp32"):
        if known in lower:
            return known
    return {"bfloat16": "bf16", "16": "fp16", "16-mixed": "fp16"}.get(lower, lower)


def container_tag(text: str) -> str:
    """Return the release of a container: `25.07` of `nvcr.io#nvidia/nemo:25.07`, of a .sqsh file or of the bare tag."""
    found = re.findall(r"(?<![0-9.])[0-9]{2}\.[0-9]{2}(?:\.[0-9]{1,2})?(?:\.[A-Za-z][\w-]*)?(?![0-9])", text)
    return re.sub(r"\.sqsh\Z", "", found[-1]) if found else text


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run held against a row. `ratio` = run / row in tokens/s/GPU; None, with `reasons`, where it was refused."""

    row: TrainingRun
    ratio: float | None
    measured: float | None
    reference: float | None
    reasons: tuple[str, ...]
    sentence: str
    unit: str = "tokens/s/GPU"

    @property
    def compared(self) -> bool:
        """Say whether the two are alike enough to be compared."""
        return self.ratio is not None


def _name(field: str) -> str:
    return {"gpu": "GPU type", "gpus": "GPUs", "global_batch": "GBS", "sequence": "sequence length"}.get(
        field, field.upper() if len(field) == 2 else field
    )


def _alike(field: str, theirs: Any, ours: Any) -> bool:
    if field == "container":
        return container_tag(theirs) == container_tag(ours)
    if field == "precision":
        return precision_name(theirs) == precision_name(ours)
    if field == "gpu":
        return _is_gpu(theirs, ours)
    return bool(theirs == ours)


#: What must be equal before two throughputs mean the same.
ALIKE = (
    "model",
    "framework",
    "container",
    "precision",
    "gpu",
    "gpus",
    "global_batch",
    "sequence",
    "tp",
    "pp",
    "cp",
    "vp",
)


def compare_like_for_like(row: TrainingRun, run: TrainingRun) -> Comparison:
    """Compare a measured run with a published row, or refuse with every reason why they are not alike.

    Refused when model, container, precision, GPU type or count, GBS, sequence length or parallelism differ, and also
    when either side does not say: what is not known is not equal. VP matters only where PP > 1.
    """
    reasons = []
    for field in ALIKE:
        if field == "vp" and row.pp == 1 and run.pp == 1:
            continue
        theirs, ours = getattr(row, field), getattr(run, field)
        if field == "framework" and (theirs is None or ours is None):
            continue  # the container says it already
        if theirs is None:
            reasons.append(f"the reference does not say its {_name(field)}")
        elif ours is None:
            reasons.append(f"the run's {_name(field)} is not known (the reference: {theirs})")
        elif not _alike(field, theirs, ours):
            reasons.append(f"{_name(field)} differs: {ours} here, {theirs} in the reference")
    measured, reference = run.throughput, row.throughput
    if measured is None:
        reasons.append("the run has no throughput")
    if reference is None:
        reasons.append("the reference has no throughput that can be computed")
    if reasons or measured is None or reference is None:
        sentence = f"Not comparable with {row.source or 'the reference'}: {'; '.join(reasons)}."
        return Comparison(row, None, measured, reference, tuple(reasons), sentence)
    ratio = measured / reference
    sentence = (
        f"{measured:,.0f} tokens/s/GPU, {100 * ratio:.1f} % of the {reference:,.0f} of {row.source} "
        f"({row.model}, {row.gpus} {row.gpu}, {row.precision}, container {row.container})."
    )
    return Comparison(row, ratio, measured, reference, (), sentence)


def best_reference(rows: Iterable[TrainingRun], run: TrainingRun) -> Comparison | None:
    """Return the comparison with the row that is like the run, else the refusal that came closest; None without rows.

    Only rows of the run's model are looked at if there are any, so that the refusal says something useful.
    """
    candidates = list(rows)
    same_model = [row for row in candidates if row.model == run.model]
    comparisons = [compare_like_for_like(row, run) for row in same_model or candidates]
    return min(comparisons, key=lambda c: len(c.reasons), default=None)


def describe_throughput(run: TrainingRun, references: References) -> dict[str, float]:
    """Return what can be computed of a run: tokens/s/GPU, TFLOPS (with and without attention) and MFU (fraction).

    Keys that need something unknown (the model's shape, the GPU's peak) are left out, never guessed.
    """
    out: dict[str, float] = {}
    throughput = run.throughput
    if throughput is None or not math.isfinite(throughput):
        return out
    out["tokens_per_s_per_gpu"] = throughput
    shape = references.models.get(run.model)
    if shape is None or run.sequence is None:
        return out
    out["tflops_per_gpu_without_attention"] = model_tflops_per_gpu(
        throughput, shape.flops_per_token(run.sequence, "none")
    )
    attention: Attention = "causal" if run.framework == "megatron_bridge" else "full"
    out["tflops_per_gpu"] = model_tflops_per_gpu(throughput, shape.flops_per_token(run.sequence, attention))
    gpu = references.gpu_type(run.gpu) if run.gpu else None
    if gpu is not None and run.precision is not None and precision_name(run.precision) in gpu.peak_tflops:
        out["mfu"] = mfu(out["tflops_per_gpu"], gpu.peak(run.precision))
    return out
