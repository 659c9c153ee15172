"""Uploads local inputs of workflows (``./questions.jsonl``, ``./model``) to the fabric."""

import io
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from flowmesh_api.v1.problems import Problem
from flowmesh_api.v1.runs import Uploaded
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.errors import CliError, FilesError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.workflows.local_inputs import local_inputs, local_path
from flowmesh_cli.workflows.sources import Source
from flowmesh_core.errors import SpecError

_NOT_OF_THE_FILE = (ExitCode.NO_FABRIC, ExitCode.REFUSED, ExitCode.INTERNAL)


def upload_inputs(http: ApiClient, source: Source) -> None:
    """Uploads a workflow's local inputs and records their references in ``source``.

    Raises:
        FilesError: files are missing or of the wrong kind; lists all of them.
        CliError: the fabric does not answer, or the user may not upload to the namespace.
    """
    metadata = source.document.value["metadata"]
    if http.default_namespace:
        metadata.setdefault("namespace", http.default_namespace)
    namespace = metadata.get("namespace", "default")
    inputs: dict[str, Any] = source.document.value["spec"].get("inputs", {})
    problems: list[Problem] = []
    for name, kind, text in local_inputs(inputs):
        path = local_path(text, source.folder)
        where = f"spec.inputs.{name}.{kind}"
        try:
            source.uploads[name] = upload_content(http, path, kind, namespace)
        except SpecError as e:
            problems += [Problem(where, p.message) for p in e.problems]
        except OSError as e:
            problems.append(Problem(where, f"{path}: {e.strerror or e}"))
        except CliError as e:
            if e.code in _NOT_OF_THE_FILE:
                raise
            problems.append(Problem(where, str(e)))
    if problems:
        raise FilesError(source.lines(problems))


def upload_content(http: ApiClient, path: Path, kind: str, namespace: str) -> str:
    """Uploads a file or folder and returns its reference.

    Args:
        http: the fabric.
        path: a file of rows for the kind ``dataset``, otherwise a folder.
        kind: ``dataset``, ``model`` or ``adapter``.
        namespace: that may use it.

    Raises:
        OSError: it cannot be read.
        CliError: the fabric refuses it, or does not answer.
    """
    if kind == "dataset":
        query = {"namespace": namespace, "name": path.name}
        with path.open("rb") as file:
            return http.ask("POST", "/v1/datasets", Uploaded, query=query, body=file).reference
    with _packed(path) as packed:
        query = {"namespace": namespace, "kind": kind}
        return http.ask("POST", "/v1/trees", Uploaded, query=query, body=packed).reference


def _packed(directory: Path) -> io.BufferedRandom:
    """Returns a directory's files as a tar, in a temporary file so that its size is known."""
    packed = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for found in sorted(directory.rglob("*")):
            if found.is_file():
                tar.add(found.resolve(), arcname=found.relative_to(directory).as_posix())
    packed.seek(0, os.SEEK_SET)
    return packed
