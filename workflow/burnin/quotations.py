# SPDX-License-Identifier: Apache-2.0
"""The campaign's raw files, for quotations: where an evidence (`path:line`, relative to the campaign) lies and what it says."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

from burnin import storage

#: Characters looked at of a quoted line.
LONGEST = 2000


class Files:
    """The raw files of the campaign in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, place: str) -> Path | None:
        """Return the file that an evidence names (compressed, perhaps), or None if there is none inside the campaign's folder."""
        target = (self.folder / place.rpartition(":")[0]).resolve()
        return storage.stored(target) if target.is_relative_to(self.folder.resolve()) else None

    def quote(self, place: str) -> str | None:
        """Return the line that an evidence names without control characters, or None if it cannot be read."""
        line = place.rpartition(":")[2]
        target = self.find(place)
        if not line.isdigit() or target is None:
            return None
        try:
            opened = gzip.open if target.suffix == storage.COMPRESSED else open
            with opened(target, "rb") as stream:
                for number, raw in enumerate(stream, 1):
                    if number == int(line):
                        text = raw[:LONGEST].decode("utf-8", "replace").strip()
                        return "".join(c for c in text if c.isprintable() or c == "\t")
        except (OSError, EOFError, zlib.error):
            return None
        return None

    def started(self, run: str) -> float | None:
        """Return when a run started (s since 1970)."""
        try:
            value = json.loads((self.folder / run / "result.json").read_text(encoding="utf-8"))["started"]
        except (OSError, ValueError, KeyError):
            return None
        return float(value) if value is not None else None
