# SPDX-License-Identifier: Apache-2.0
"""Isolation through Snakemake on the lab: one bad link is found as a link, and everybody else goes on."""

from __future__ import annotations

from pathlib import Path

from tests.integration.campaigns import Lab


def test_one_bad_link_is_found_as_a_link(tmp_path: Path) -> None:
    """1-3 good, 2-4 good, 1-2 bad twice: the path; both ends stay suspect, the others are accepted."""
    lab = Lab(tmp_path, [{"kind": "fabric_slow", "between": ["dgx01", "dgx02"], "part": "leaf1"}], nodes="dgx[01-06]")
    lab.snakemake()
    summary = lab.summary
    assert [link["between"] for link in summary["links"]] == [[["dgx01"], ["dgx02"]]]
    assert summary["links"][0]["evidence"]
    status = {n: e["status"] for n, e in summary["nodes"].items()}
    assert status.pop("dgx01") == status.pop("dgx02") == "suspect"
    assert set(status.values()) == {"accepted"}
    assert [(h["step"], h["heat"]) for h in summary["heats"] if h["step"] == "x2"] == [("x2", 0), ("x2", 1), ("x2", 2)]
