# SPDX-License-Identifier: Apache-2.0
"""Reading and writing the campaign's files: validated by schema, written to a temporary name and renamed (C2)."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

from burnin.errors import EvidenceError

SCHEMAS = Path(__file__).resolve().parents[1] / "schemas"


@functools.cache
def validator(schema: str) -> Any:
    """Return the compiled validator of `workflow/schemas/<schema>.schema.json`."""
    import jsonschema
    import referencing

    def load(name: str) -> Any:
        return json.loads((SCHEMAS / name).read_text(encoding="utf-8"))

    document = load(f"{schema}.schema.json")
    # one schema may refer to another by its file name: the config's to that of the criteria
    registry: referencing.Registry[Any] = referencing.Registry()
    for name in _references(document):
        registry = registry.with_resource(name, referencing.Resource.from_contents(load(name)))
    return jsonschema.Draft202012Validator(document, registry=registry)


def _references(document: Any) -> set[str]:
    """Return the files that a schema refers to."""
    if isinstance(document, dict):
        own = {document["$ref"]} if str(document.get("$ref", "")).endswith(".schema.json") else set()
        return own.union(*(_references(v) for v in document.values()))
    return set().union(*(_references(v) for v in document)) if isinstance(document, list) else set()


def check(document: Any, schema: str, where: object) -> None:
    """Raise EvidenceError if `document` does not follow the schema; the message names the place inside it."""
    error = next(iter(validator(schema).iter_errors(document)), None)
    if error is not None:
        place = "/".join(str(p) for p in error.absolute_path) or "(top)"
        raise EvidenceError(
            f"{where} does not follow schema {schema}: at {place}: {error.message[:300]}",
            "the file was cut or edited; move it away and run snakemake again",
        )


def parse_yaml(text: str) -> Any:
    """Return a YAML document of plain values; libyaml reads it ten times as fast. Raises yaml.YAMLError."""
    import yaml

    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def read_json(path: Path, schema: str) -> Any:
    """Return the validated content. Raises FileNotFoundError, or EvidenceError if it is damaged."""
    text = path.read_bytes()
    try:
        document = json.loads(text)
    except ValueError as error:
        raise EvidenceError(
            f"{path} is not valid JSON ({error})", "the file was cut or edited; move it away and run snakemake again"
        ) from None
    check(document, schema, path)
    return document


def write_json(path: Path, document: Any, schema: str) -> None:
    """Validate, write beside the target, sync, rename: a reader sees the old file or the whole new one."""
    check(document, schema, path)
    write_text(path, json.dumps(document, indent=1, sort_keys=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file so that a kill at any moment leaves the old file or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file of a folder that exists: durable when this returns, also if the machine dies then."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def append_line(path: Path, line: str) -> None:
    """Append a line to an append-only record; it is durable when this returns. A torn line before it is closed first."""
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(handle).st_size
        start = b"\n" if size and os.pread(handle, 1, size - 1) != b"\n" else b""
        os.write(handle, start + line.encode() + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)


def records(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the records of an append-only file, one JSON object a line, and how many lines are none.

    A line that is torn was never recorded: whoever wrote it was killed before `append_line` returned.
    """
    found, torn = [], 0
    for line in path.read_bytes().split(b"\n") if path.exists() else []:
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict):
            found.append(record)
        else:
            torn += 1
    return found, torn


#: What a compressed raw file's name has more than the name by which evidence calls it.
COMPRESSED = ".gz"


def compress(path: Path) -> None:
    """Replace a raw file by its compressed form; killed at any moment, one of the two is there and whole."""
    write_bytes(path.with_name(path.name + COMPRESSED), gzip.compress(path.read_bytes(), 6, mtime=0))
    path.unlink()


def stored(path: Path) -> Path | None:
    """Return where a raw file lies: under its name, or compressed beside it; None if it is not there."""
    packed = path.with_name(path.name + COMPRESSED)
    return path if path.is_file() else packed if packed.is_file() else None


def read_raw(path: Path) -> bytes:
    """Return the content of a raw file, compressed or not. Raises OSError if it is not there or damaged."""
    found = stored(path)
    data = (found or path).read_bytes()
    if found is None or found == path:
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error) as error:
        raise OSError(f"{found} is damaged ({error})") from None


def unpack(path: Path) -> None:
    """Put a compressed raw file back under its own name, so that whoever follows an evidence can open it."""
    if path.is_file() or stored(path) is None:
        return
    write_bytes(path, read_raw(path))


def sync_folder(folder: Path) -> None:
    """Make a rename or a new file in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def keep_version(path: Path, text: str) -> None:
    """Keep a copy of a decision beside it (`history/<name>.<n>.json`) unless the newest copy is the same.

    Snakemake deletes a rule's output before it runs the rule again; what was decided before must not be lost.
    """
    folder = path.parent / "history"
    folder.mkdir(parents=True, exist_ok=True)
    versions = sorted(folder.glob(f"{path.stem}.*.json"))
    if versions and versions[-1].read_text(encoding="utf-8") == text:
        return
    write_text(folder / f"{path.stem}.{len(versions):04d}.json", text)


def digest(document: Any) -> str:
    """Return the SHA-256 of a document's canonical JSON form (first 16 hex digits)."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]
