"""Reads the file of a service for ``fmesh serve``: its document, with the code of its components.

The service's code is read from files beside it; inputs that are files here are uploaded.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowmesh_api.v1.problems import Problem
from flowmesh_cli.errors import CliError, FilesError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.workflows.sources import problem_line, read_object_of, text_of
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.graph.compile_context import Keys
from flowmesh_core.graph.service_stages import compile_stages
from flowmesh_core.openai.stage_check import stage_problems
from flowmesh_core.spec.service import FlowMeshService
from flowmesh_core.stages.service_graph import ServiceGraph
from flowmesh_documents.document import parse_documents
from flowmesh_documents.paths import path_text
from flowmesh_sdk.local_inputs import (
    InputUpload,
    local_inputs,
    local_path,
)

SUFFIXES = (".yaml", ".yml", ".json")
_OTHER_KINDS = {
    "FlowMeshWorkflow": ("a workflow", "run it with `fmesh run {}`"),
    "FlowMeshCachePolicy": ("a cache policy", "set it with `fmesh policies set {}`"),
}
"""By kind, what a file holds in place of a service, and the command for it."""


@dataclass(frozen=True, slots=True)
class DescribedService:
    """A service as a file describes it.

    Attributes:
        document: what is sent to the control plane.
        service: the same, checked.
        graph: its stages; None for a service of one engine.
        uploads: its inputs that are files or folders here.
    """

    document: dict[str, Any]
    service: FlowMeshService
    graph: ServiceGraph | None
    uploads: tuple[InputUpload, ...] = ()


def is_service_file(name: str) -> bool:
    """Returns whether an argument of ``fmesh serve`` is a file, not a model."""
    return name.endswith(SUFFIXES) and "://" not in name


def read_service(path: Path, namespace: str) -> DescribedService:
    """Reads a service.

    Args:
        path: of the file.
        namespace: replaces the one of the file; empty to keep that.

    Raises:
        CliError: the file, or one of its code, cannot be read.
        FilesError: lists all problems, with lines.
    """
    documents, problems = parse_documents(text_of(path))
    if not problems and len(documents) != 1:
        problems = [Problem("", f"{len(documents)} documents: expected one service", 1, 1)]
    if problems:
        raise FilesError([problem_line(str(path), p) for p in problems])
    (document,) = documents
    if document.problems:
        raise FilesError([problem_line(str(path), p) for p in document.problems])
    value: dict[str, Any] = document.value
    _refuse_other_kinds(path, value)
    _set_namespace(value, namespace)
    folder = path.absolute().parent
    service, found = read_object_of(document, folder, load_catalog())
    if found:
        raise FilesError([problem_line(str(path), p) for p in sorted(found, key=_place)])
    assert isinstance(service, FlowMeshService)
    graph = compile_stages(service.spec, _no_problem, stage_problems)
    local = local_inputs(value["spec"])
    uploads = tuple(InputUpload(n, k, local_path(t, folder)) for n, k, t in local)
    return DescribedService(value, service, graph, uploads)


def _refuse_other_kinds(path: Path, value: Any) -> None:
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind in _OTHER_KINDS:
        what, remedy = _OTHER_KINDS[kind]
        raise CliError(
            f"{what}, not a service",
            ExitCode.USAGE,
            where=str(path),
            remedy=remedy.format(path),
        )


def _set_namespace(value: Any, namespace: str) -> None:
    metadata = value.get("metadata") if isinstance(value, dict) else None
    if isinstance(metadata, dict):
        metadata["namespace"] = namespace or metadata.get("namespace") or "default"


def _place(problem: Problem) -> tuple[int, int]:
    return problem.line, problem.column


def _no_problem(keys: Keys, message: str) -> None:
    raise AssertionError(f"{path_text(keys)}: {message}")  # it was compiled before
