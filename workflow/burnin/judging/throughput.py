# SPDX-License-Identifier: Apache-2.0
"""What a training run is worth in tokens/s/GPU, TFLOPS and MFU, and how it stands to a published row that is like it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from burnin import arithmetic

#: Below this share of a like-for-like reference, everywhere alike, the stack or the recipe is asked first.
LOW = 0.9


def training_run(
    result: Mapping[str, Any], definition: Mapping[str, Any], gpus_per_node: int, seconds: float
) -> arithmetic.TrainingRun:
    """Return a run as the arithmetic knows it: recipe and sizes from the config, batch and step time (s) from its log."""
    sizes = definition.get("training") or {}
    logged = [i["facts"].get("global_batch_size") for i in result["iterations"]]
    return arithmetic.TrainingRun.of(
        {
            **definition["like_for_like"],
            "gpus": len(result["nodes"]) * gpus_per_node,
            "global_batch": next((int(b) for b in logged if b), sizes.get("global_batch_size")),
            "micro_batch": sizes.get("micro_batch_size"),
            "sequence": sizes.get("sequence_length"),
            "tp": sizes.get("tensor_parallel"),
            "pp": sizes.get("pipeline_parallel"),
            "cp": sizes.get("context_parallel"),
            "step_seconds": seconds,
        }
    )


def notes(
    results: Sequence[Mapping[str, Any]],
    definition: Mapping[str, Any],
    gpus_per_node: int,
    references: arithmetic.References,
) -> list[str]:
    """Return one sentence for each group size of a heat's training runs of one workload."""
    by_size: dict[int, list[Mapping[str, Any]]] = {}
    for result in results:
        by_size.setdefault(len(result["nodes"]), []).append(result)
    out = []
    for runs in (by_size[size] for size in sorted(by_size)):
        times = [median(v) for r in runs if (v := [i["value"] for i in r["iterations"] if i["value"] is not None])]
        if times:
            run = training_run(runs[0], definition, gpus_per_node, median(times))
            out.append(f"{runs[0]['workload']} on {run.gpus} GPUs ({len(times)} run{'s' if len(times) > 1 else ''}): "
                       f"{_sentence(run, references)}")  # fmt: skip
    return out


def _sentence(run: arithmetic.TrainingRun, references: arithmetic.References) -> str:
    figures = arithmetic.describe_throughput(run, references)
    if not figures:
        return "no throughput: batch size, sequence length or step time are not known"
    words = [f"{figures['tokens_per_s_per_gpu']:,.0f} tokens/s/GPU"]
    if "tflops_per_gpu" in figures:
        words.append(f"{figures['tflops_per_gpu']:.0f} TFLOPS/GPU")
    if "mfu" in figures:
        words.append(f"MFU {100 * figures['mfu']:.1f} %")
    text = ", ".join(words)
    if figures.get("mfu", 0.0) > 1.0:
        text += " - more than the GPU can give: the recipe in the config is not the one that ran"
    comparison = arithmetic.best_reference(references.rows, run)
    if comparison is None:
        return text
    if comparison.ratio is not None and comparison.ratio < LOW:
        return (
            f"{text}. {comparison.sentence} That is low: compare precision, CUDA_DEVICE_MAX_CONNECTIONS, NCCL transport, "
            "clocks and power caps with the reference"
        )
    return f"{text}. {comparison.sentence}".rstrip(".")
