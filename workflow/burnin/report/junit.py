# SPDX-License-Identifier: Apache-2.0
"""junit.xml: a test suite for every step, a test case for every node and workload, for CI systems. Pure.

passed: nothing; failed: failure; owes, withdrawn, not counted, not run: skipped (nobody failed, nothing passed); suspect
and unknown: error (it was tested and could not be decided).
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from burnin.report.facts import Facts
from burnin.report.sections.view import View

KINDS = {
    "failed": "failure",
    "suspect": "error",
    "unknown": "error",
    "owes": "skipped",
    "withdrawn": "skipped",
    "not counted": "skipped",
    "not run": "skipped",
}
#: What XML 1.0 cannot hold, escaped or not.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(text: str) -> str:
    """Return a text without the characters that XML forbids."""
    return _NO_XML.sub("�", text)


def write(facts: Facts) -> str:
    """Return the XML."""
    view = View(facts)
    root = ElementTree.Element("testsuites", {"name": clean(facts.campaign)})
    for step, workloads in facts.steps.items():
        suite = ElementTree.SubElement(root, "testsuite", {"name": step})
        counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
        seconds = 0.0
        for workload in workloads:
            for node in facts.nodes:
                entry = view.entry(node)
                cell = view.cells[node][step, workload]
                spent = 3600 * float(entry["hours"].get(step, {}).get(workload, 0.0))
                seconds += spent
                counts["tests"] += 1
                case = ElementTree.SubElement(
                    suite, "testcase",
                    {"classname": f"{step}.{workload}", "name": clean(node), "time": f"{spent:.3f}"},
                )  # fmt: skip
                kind = KINDS.get(cell.state)
                if kind is None:
                    continue
                counts[kind + "s" if kind != "skipped" else kind] += 1
                text = clean(cell.text or cell.state)
                told = ElementTree.SubElement(case, kind, {"message": text[:300], "type": cell.state})
                if kind == "failure":
                    lines = [text, *entry["evidence"][:6], f"next: {entry['next_action']}"]
                    told.text = clean("\n".join(str(line) for line in lines))
        suite.attrib |= {k: str(v) for k, v in counts.items()} | {"time": f"{seconds:.3f}"}
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"
