"""From text or an API object to validated models, with every problem found.

The CLI loads files with :func:`load_text`; the operator reads objects with :func:`parse_object`.
"""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from flowmesh_api.v1.problems import Problem
from flowmesh_core.errors import SpecError
from flowmesh_core.spec.error_messages import RULE, describe, location, problems_of
from flowmesh_core.spec.fields import API_VERSION
from flowmesh_core.spec.parameters import fill_parameters
from flowmesh_core.spec.policy import FlowMeshCachePolicy
from flowmesh_core.spec.pool import FlowMeshWorkerPool
from flowmesh_core.spec.quota import FlowMeshQuota
from flowmesh_core.spec.service import FlowMeshService
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.spec.workflow import FlowMeshWorkflow
from flowmesh_core.spec.workflow_reader import UNKNOWN_ENGINE, WorkflowReader
from flowmesh_documents.document import MAX_TEXT_BYTES, Document, parse_documents
from flowmesh_documents.parameters import whole_numbers
from flowmesh_documents.paths import Key, path_keys

Object = (
    FlowMeshWorkflow | FlowMeshWorkerPool | FlowMeshCachePolicy | FlowMeshQuota | FlowMeshService
)
KINDS: dict[str, type[Object]] = {
    "FlowMeshWorkflow": FlowMeshWorkflow,
    "FlowMeshWorkerPool": FlowMeshWorkerPool,
    "FlowMeshCachePolicy": FlowMeshCachePolicy,
    "FlowMeshQuota": FlowMeshQuota,
    "FlowMeshService": FlowMeshService,
}

_STAND_INS: dict[Key, Any] = {
    "uses": UNKNOWN_ENGINE,
    "apiVersion": API_VERSION,
    "metadata": {"name": "unnamed"},
}
_N8N = (
    "an export of n8n, and FlowMesh imports none: write each node that works on rows as a step of a"
    " FlowMeshWorkflow (docs/spec.md)"
)
_ROUNDS = 4
_NAMING_DEPTH = 3  # spec.inputs.base


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """One document of a file, as far as it could be read.

    Attributes:
        document: the text's values and lines.
        object: the object; where there are problems, the object without the wrong fields, or None
            where nothing useful remains.
        problems: of the object, with lines; those of the text are the document's.
    """

    document: Document
    object: Object | None
    problems: tuple[Problem, ...]


def load_text(
    text: str, *, max_bytes: int = MAX_TEXT_BYTES
) -> tuple[list[ParsedDocument], list[Problem]]:
    """Reads every object of a file.

    Returns:
        The documents, and the problems of the text itself.
    """
    documents, problems = read_documents(text, max_bytes=max_bytes)
    return [load_document(document) for document in documents], problems


def read_documents(
    text: str, *, max_bytes: int = MAX_TEXT_BYTES
) -> tuple[list[Document], list[Problem]]:
    """Returns the documents of a file, and the problems of the text; one that is empty has one."""
    documents, problems = parse_documents(text, max_bytes=max_bytes)
    if not documents and not problems:
        problems = [Problem("", "the file holds no object", 1, 1)]
    return documents, problems


def load_document(document: Document) -> ParsedDocument:
    """Reads the object of a document, as far as it can be read."""
    found, wrong = _validate(document.value)
    wrong = without_echoes(wrong, document.problems)
    return ParsedDocument(document, found, tuple(document.locate(p) for p in wrong))


def parse_object(value: Mapping[str, Any]) -> Object:
    """Returns the object in a value from the API server, without its status.

    A user cannot correct the status, so it is not checked.

    Raises:
        SpecError: with every problem.
    """
    found, problems = read_object(value)
    raise_problems(problems)
    if found is None:
        raise SpecError([Problem("", "no object")])
    return found


def read_object(value: Mapping[str, Any]) -> tuple[Object | None, list[Problem]]:
    """Returns the object in a value from the API server, and every problem of its fields.

    Where there are problems, it is the object without the wrong fields, so that more can be
    checked, or None where nothing useful remains.
    """
    return _validate({k: v for k, v in value.items() if k != "status"})


def raise_problems(problems: list[Problem]) -> None:
    """Raises a ``SpecError`` with the problems in order of line, if there are any."""
    if problems:
        raise SpecError(sorted(problems, key=lambda p: (p.line, p.column)))


def without_echoes(problems: list[Problem], earlier: Iterable[Problem]) -> list[Problem]:
    """Returns the problems that are not about a field, or part of one, with an earlier problem."""
    known = [path_keys(p.path) for p in earlier if p.path]
    return [p for p in problems if not _echoes(path_keys(p.path), known)]


def _echoes(keys: tuple[Key, ...], known: list[tuple[Key, ...]]) -> bool:
    return any(keys[: len(k)] == k[: len(keys)] for k in known)


def _validate(value: Any) -> tuple[Object | None, list[Problem]]:
    if not isinstance(value, dict):
        return None, [
            Problem("", f"expected an object with apiVersion and kind, got {describe(value)}")
        ]
    value = whole_numbers(value)
    kind = value.get("kind")
    model = KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        if kind is None and {"nodes", "connections"} <= value.keys():
            return None, [Problem("", _N8N)]
        if kind is None:
            return None, [Problem("kind", f"is required: one of {', '.join(KINDS)}")]
        return None, [Problem("kind", f"no kind {kind!r}{did_you_mean(str(kind), KINDS)}")]
    if model is FlowMeshWorkflow:
        return _read_workflow(value)
    return _read(value, model)


def _read_workflow(value: dict[str, Any]) -> tuple[FlowMeshWorkflow | None, list[Problem]]:
    """Fills in the parameters of a workflow, then reads it; one mistake hides no others."""
    filled = fill_parameters(value)
    reader = WorkflowReader(filled)
    found = reader.read()
    return found, [*filled.problems, *without_echoes(reader.problems, filled.problems)]


def _read(value: dict[str, Any], model: type[Object]) -> tuple[Object | None, list[Problem]]:
    try:
        return model.model_validate(value), []
    except ValidationError as error:
        return _rest(value, model, error), problems_of(error, model)


def _rest(value: dict[str, Any], model: type[Object], error: ValidationError) -> Object | None:
    """The object without the wrong fields, so that more can be checked."""
    value = copy.deepcopy(value)
    for _ in range(_ROUNDS):
        if not all(_remove(value, location(e), e["type"]) for e in error.errors()):
            return None
        try:
            return model.model_validate(value)
        except ValidationError as e:
            error = e
    return None


def _remove(value: Any, keys: tuple[Key, ...], kind: str) -> bool:
    """Removes or replaces one wrong field in place; False where that would mislead."""
    if kind == RULE or _is_referred_to(keys):
        return False
    for key in keys[:-1]:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return False
    if not isinstance(value, dict):
        return False
    if keys[-1] in _STAND_INS:
        value[keys[-1]] = copy.deepcopy(_STAND_INS[keys[-1]])
        return True
    mendable = kind != "missing" and keys[-1] in value
    value.pop(keys[-1], None)
    return mendable


def _is_referred_to(keys: tuple[Key, ...]) -> bool:
    """Whether other fields refer to this one, so that they would seem wrong without it."""
    if not keys or keys[-1] in {"name", "kind", "spec"}:
        return True
    return keys[:2] == ("spec", "inputs") and len(keys) <= _NAMING_DEPTH
