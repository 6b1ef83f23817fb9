# SPDX-License-Identifier: Apache-2.0
"""The report in a browser: no error, every plot drawn, nothing wider than a phone, and it prints. Needs chromium."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from burnin.report.write import write

from benchmarks import bench_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (Debian: apt-get install chromium)")

#: Run in a copy of the page, in a frame (a window is never narrower than 500 pixels): what a reader would notice.
LOOK = """<script>
const svgs = [...document.querySelectorAll('svg')], page = document.documentElement;
document.querySelectorAll('details').forEach(d => d.open = true);
const wide = [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, figure.wide, svg')
    && e.getBoundingClientRect().right > page.clientWidth + 1).map(e => e.tagName + '.' + e.className);
const small = svgs.flatMap(s => [...s.querySelectorAll('text')].slice(0, 3)).filter(t => t.getBoundingClientRect().height < 7).length;
parent.document.title = JSON.stringify({width: page.clientWidth, scroll: page.scrollWidth, svgs: svgs.length, wide: wide.slice(0, 5), small,
    drawn: svgs.filter(s => { const b = s.getBBox(); return b.width > 50 && b.height > 30
        && s.querySelectorAll('path, circle, rect').length > 0; }).length,
    outside: svgs.flatMap(s => [...s.querySelectorAll('path, circle, rect')].filter(e => { const a = e.getBBox(), v = s.viewBox.baseVal;
        return a.x < -1 || a.y < -1 || a.x + a.width > v.width + 1 || a.y + a.height > v.height + 1; })).length});
</script>"""


def browse(target: Path, work: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Open a page without a window."""
    assert CHROMIUM
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
               "--no-first-run", "--enable-logging=stderr", f"--user-data-dir={work / 'profile'}", *options,
               target.resolve().as_uri()]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report of a campaign of 16 nodes."""
    folder = bench_report.build(
        tmp_path_factory.mktemp("browser"), 16, iterations={"nccl": 8, "hpl": 4, "nemo": 2, "diag": 1}
    )
    write(folder)
    return folder / "report.html"


def looked_at(report: Path, work: Path, width: int) -> dict[str, Any]:
    """Return what a reader would notice at a width (pixels)."""
    inner = report.read_text(encoding="utf-8").replace("</body>", LOOK + "</body>")
    frame = f'<iframe width="{width}" height="900" style="border:0" srcdoc="{html.escape(inner)}"></iframe>'
    copy = work / f"look-{width}.html"
    copy.write_text(
        f"<!DOCTYPE html><html lang=en><head><title></title></head><body>{frame}</body></html>", encoding="utf-8"
    )
    done = browse(copy, work, "--window-size=1300,1000", "--virtual-time-budget=5000", "--dump-dom")
    assert "CONSOLE" not in done.stderr, done.stderr[-2000:]
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title
    found: dict[str, Any] = json.loads(html.unescape(title[1]))
    return found


@pytest.mark.parametrize("width", [1200, 390])
def test_a_reader_sees_all_plots_and_never_scrolls_sideways(report: Path, tmp_path: Path, width: int) -> None:
    seen = looked_at(report, tmp_path, width)
    assert seen["width"] == width and seen["svgs"] >= 20
    assert seen["drawn"] == seen["svgs"], "a plot without content"
    assert seen["outside"] == 0, "something is drawn outside of its plot"
    assert seen["scroll"] <= seen["width"] and seen["wide"] == [], f"wider than the page: {seen['wide']}"
    assert seen["small"] == 0, "text in a plot that nobody can read"


def test_it_prints(report: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.pdf"
    browse(report, tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={target}")
    content = target.read_bytes()
    assert content.startswith(b"%PDF") and len(content) > 50_000
