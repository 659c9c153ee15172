"""Inputs of a workflow that are files or folders of this machine: found, checked, uploaded."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from flowmesh_api.v1 import routes
from flowmesh_api.v1.problems import Problem
from flowmesh_api.v1.runs import Uploaded
from flowmesh_documents.local_paths import is_local
from flowmesh_documents.parameters import parameter_values
from flowmesh_documents.substitution import Substitution
from flowmesh_sdk.http.client import ApiConnection

DATA_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
SHOWN = 200
"""Characters that are shown of a text that cannot be a path."""
_KINDS = ("dataset", "model", "adapter")


class InputUpload(NamedTuple):
    """An input that is uploaded: ``kind`` is ``dataset``, ``model`` or ``adapter``."""

    name: str
    kind: str
    path: Path


def local_inputs(spec: Any) -> Iterator[tuple[str, str, str]]:
    """Yields name, kind and text of every local input of a spec; malformed inputs are skipped.

    Parameters are filled in; a text with one that has no value is skipped too.
    """
    if not isinstance(spec, Mapping):
        return
    inputs, names = spec.get("inputs"), Substitution(parameter_values(spec.get("params")))
    for name, given in inputs.items() if isinstance(inputs, Mapping) else ():
        for kind in _KINDS if isinstance(given, Mapping) else ():
            unknown: list[str] = []
            text = names.fill(given.get(kind), lambda _, message: unknown.append(message))  # noqa: B023 - called at once
            if isinstance(text, str) and is_local(text.strip()) and not unknown:
                yield name, kind, text.strip()


def local_path(text: str, folder: Path) -> Path:
    """Returns the path that an input names; relative ones start from the workflow's folder."""
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path or text.removeprefix("file:"))
    return folder / Path(text).expanduser()


def missing_files(document: Mapping[str, Any], folder: Path) -> list[Problem]:
    """Returns a problem for every local input that is missing or of the wrong kind."""
    problems = []
    for name, kind, text in local_inputs(document.get("spec")):
        try:
            wrong = _wrong_with(local_path(text, folder), kind)
        except (OSError, RuntimeError, ValueError) as e:  # not a possible path, or no permission
            why = e.strerror if isinstance(e, OSError) else str(e).rstrip(".")
            wrong = f"{text[:SHOWN]} cannot be read: {why}; check the path and your permissions"
        if wrong:
            problems.append(Problem(f"spec.inputs.{name}.{kind}", wrong))
    return problems


def upload(http: ApiConnection, path: Path, kind: str, namespace: str) -> Uploaded:
    """Uploads a file or folder.

    Args:
        http: the fabric.
        path: a file of rows for the kind ``dataset``, otherwise a folder.
        kind: ``dataset``, ``model`` or ``adapter``.
        namespace: that may use it; empty for the user's.

    Raises:
        OSError: it cannot be read.
        FlowMeshError: the fabric refuses it, or does not answer.
    """
    if kind == "dataset":
        query = {"namespace": namespace, "name": path.name}
        with path.open("rb") as file:
            return http.ask("POST", routes.DATASETS, Uploaded, query=query, body=file)
    with _packed(path) as packed:
        query = {"namespace": namespace, "kind": kind}
        return http.ask("POST", routes.TREES, Uploaded, query=query, body=packed)


@contextlib.contextmanager
def _packed(directory: Path) -> Iterator[IO[bytes]]:
    """Yields a directory's files as a tar, in a temporary file so that its size is known."""
    import tarfile  # noqa: PLC0415 - see local_fabric
    import tempfile  # noqa: PLC0415

    with tempfile.TemporaryFile() as packed:
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for found in sorted(directory.rglob("*")):
                if found.is_file():
                    tar.add(found.resolve(), arcname=found.relative_to(directory).as_posix())
        packed.seek(0, os.SEEK_SET)
        yield packed


def _wrong_with(path: Path, kind: str) -> str:
    if not path.exists():
        return f"{path} does not exist; paths begin at the folder of the workflow's file"
    if kind == "dataset":
        return _wrong_with_rows(path)
    if not path.is_dir():
        return f"{path} is not a directory: expected a Hugging Face directory"
    config = "config.json" if kind == "model" else "adapter_config.json"
    return "" if (path / config).exists() else f"{path} has no {config}"


def _wrong_with_rows(path: Path) -> str:
    if path.is_dir():
        return f"{path} is a directory: expected a file of rows"
    if not path.is_file():  # to read a FIFO or a device might not end
        return f"{path} is not a regular file: expected a file of rows"
    if path.suffix not in DATA_SUFFIXES:
        return f"{path.name}: expected one of {', '.join(DATA_SUFFIXES)}"
    return ""
