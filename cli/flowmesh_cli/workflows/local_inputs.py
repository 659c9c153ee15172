"""Finds and checks the inputs of a workflow that are local files or directories."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from flowmesh_api.v1.problems import Problem
from flowmesh_core.graph.external import is_local

DATA_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
SHOWN = 200
"""Characters that are shown of a text that cannot be a path."""
_KINDS = ("dataset", "model", "adapter")


class InputUpload(NamedTuple):
    """An input that is uploaded: ``kind`` is ``dataset``, ``model`` or ``adapter``."""

    name: str
    kind: str
    path: Path


def local_inputs(inputs: Any) -> Iterator[tuple[str, str, str]]:
    """Yields name, kind and text of every local input; malformed inputs are skipped."""
    for name, given in inputs.items() if isinstance(inputs, Mapping) else ():
        for kind in _KINDS if isinstance(given, Mapping) else ():
            text = given.get(kind)
            if isinstance(text, str) and is_local(text.strip()):
                yield name, kind, text.strip()


def local_path(text: str, folder: Path) -> Path:
    """Returns the path that an input names; relative ones start from the workflow's folder."""
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path or text.removeprefix("file:"))
    return folder / Path(text).expanduser()


def missing_files(document: Mapping[str, Any], folder: Path) -> list[Problem]:
    """Returns a problem for every local input that is missing or of the wrong kind."""
    spec = document.get("spec")
    inputs = spec.get("inputs") if isinstance(spec, Mapping) else None
    problems = []
    for name, kind, text in local_inputs(inputs):
        try:
            wrong = _wrong_with(local_path(text, folder), kind)
        except (OSError, RuntimeError, ValueError) as e:  # not a possible path, or no permission
            why = e.strerror if isinstance(e, OSError) else str(e).rstrip(".")
            wrong = f"{text[:SHOWN]} cannot be read: {why}; check the path and your permissions"
        if wrong:
            problems.append(Problem(f"spec.inputs.{name}.{kind}", wrong))
    return problems


def _wrong_with(path: Path, kind: str) -> str:
    if not path.exists():
        return f"{path} does not exist"
    if kind == "dataset":
        if path.is_dir():
            return f"{path} is a directory: expected a file of rows"
        if path.suffix not in DATA_SUFFIXES:
            return f"{path.name}: expected one of {', '.join(DATA_SUFFIXES)}"
    elif not path.is_dir():
        return f"{path} is not a directory: expected a Hugging Face directory"
    elif not (path / ("config.json" if kind == "model" else "adapter_config.json")).exists():
        return f"{path} has no {'config.json' if kind == 'model' else 'adapter_config.json'}"
    return ""
