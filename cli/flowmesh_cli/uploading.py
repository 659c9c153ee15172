"""Local inputs (``./questions.jsonl``, ``./model``) of workflows, stored in the fabric first."""

import io
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from flowmesh_cli.client import Http
from flowmesh_cli.exits import ExitCode
from flowmesh_cli.failing import CliError, FilesError
from flowmesh_cli.sources import Source
from flowmesh_core.errors import Problem, SpecError
from flowmesh_core.graph.external import is_local

DATA_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")


class Uploaded(msgspec.Struct, frozen=True):
    """The API's answer to an upload."""

    reference: str


def upload_inputs(http: Http, source: Source) -> None:
    """Stores a workflow's local inputs and remembers their references.

    Raises:
        FilesError: files are missing or are not what they should be; all of them.
    """
    namespace = source.document.value["metadata"].get("namespace", "default")
    inputs: dict[str, Any] = source.document.value["spec"].get("inputs", {})
    problems: list[Problem] = []
    for name, given in inputs.items():
        for kind in ("dataset", "model", "adapter"):
            text = given.get(kind)
            if not isinstance(text, str) or not is_local(text.strip()):
                continue
            path = local_path(text.strip(), source.folder)
            where = f"spec.inputs.{name}.{kind}"
            try:
                source.uploads[name] = _upload(http, path, kind, namespace)
            except SpecError as e:
                problems += [Problem(where, p.message) for p in e.problems]
            except OSError as e:
                problems.append(Problem(where, f"{path}: {e.strerror or e}"))
            except CliError as e:
                if e.code in (ExitCode.NO_FABRIC, ExitCode.INTERNAL):
                    raise
                problems.append(Problem(where, str(e)))
    if problems:
        raise FilesError(source.lines(problems))


def local_path(text: str, folder: Path) -> Path:
    """The file that an input names; relative ones start from the workflow's folder."""
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path or text.removeprefix("file:"))
    return folder / Path(text).expanduser()


def missing_files(source: Source) -> list[Problem]:
    """Local inputs that are not there, before anything is started."""
    problems = []
    for name, given in source.document.value["spec"].get("inputs", {}).items():
        for kind in ("dataset", "model", "adapter"):
            text = given.get(kind)
            if not isinstance(text, str) or not is_local(text.strip()):
                continue
            path = local_path(text.strip(), source.folder)
            wrong = _wrong_with(path, kind)
            if wrong:
                problems.append(Problem(f"spec.inputs.{name}.{kind}", wrong))
    return problems


def _wrong_with(path: Path, kind: str) -> str:
    if not path.exists():
        return f"{path} does not exist"
    if kind == "dataset":
        if path.is_dir():
            return f"{path} is a directory; expected a file of rows"
        if path.suffix not in DATA_SUFFIXES:
            return f"{path.name}: expected one of {', '.join(DATA_SUFFIXES)}"
    elif not path.is_dir():
        return f"{path} is no directory; expected a Hugging Face directory"
    elif not (path / ("config.json" if kind == "model" else "adapter_config.json")).exists():
        return f"{path} holds no {'config.json' if kind == 'model' else 'adapter_config.json'}"
    return ""


def _upload(http: Http, path: Path, kind: str, namespace: str) -> str:
    if kind == "dataset":
        query = {"namespace": namespace, "name": path.name}
        answer = http.call("POST", "/v1/datasets", query=query, body=path.read_bytes())
    else:
        with _packed(path) as packed:
            query = {"namespace": namespace, "kind": kind}
            answer = http.call("POST", "/v1/trees", query=query, body=packed)
    return msgspec.json.decode(answer, type=Uploaded).reference


def _packed(directory: Path) -> io.BufferedRandom:
    """A directory's files as a tar, in a temporary file so that its size is known."""
    packed = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for found in sorted(directory.rglob("*")):
            if found.is_file():
                tar.add(found.resolve(), arcname=found.relative_to(directory).as_posix())
    packed.seek(0, os.SEEK_SET)
    return packed
