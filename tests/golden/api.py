"""The control API's answers and requests by route: the Python types, and stored JSON.

``tests/golden/api/answers`` holds what a real control plane answered (``api_recorder``), byte for
byte, and ``index.json`` the route of each. ``filled.json`` holds one value of each type with every
field filled, since no recording meets every field.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from flowmesh_api.openai import batches, files, models
from flowmesh_api.v1 import errors, routes, services
from flowmesh_api.v1.operations import operations
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.protocol.caller_review import CallerReview
from flowmesh_core.protocol.router_reports import RouterReport
from flowmesh_core.protocol.router_services import RouterServices

FOLDER = Path(__file__).parent / "api"
ANSWERS = FOLDER / "answers"
INDEX = FOLDER / "index.json"
FILLED = FOLDER / "filled.json"

JSON = "application/json"
LINES = "application/x-ndjson"
UNTYPED = dict[str, Any]
"""Of an answer in the format of OpenLineage."""

_SHOWN = [o for o in operations().values() if not o.excluded]
_OTHERS = (routes.METRICS, routes.OPENAPI)
ANSWER_TYPES: dict[str, Any] = {
    **{o.name: o.answer for o in _SHOWN if o.answer is not bytes and o.path not in _OTHERS},
    "GET /v1/router": RouterServices,
    "POST /v1/router": services.RouterReportTaken,
    "POST /v1/router/callers": CallerReview,
    "POST /openai/v1/files": files.FileObject,
    "GET /openai/v1/files": files.FileList,
    "GET /openai/v1/files/{id}": files.FileObject,
    "DELETE /openai/v1/files/{id}": files.FileDeleted,
    "POST /openai/v1/batches": batches.BatchObject,
    "GET /openai/v1/batches": batches.BatchList,
    "GET /openai/v1/batches/{id}": batches.BatchObject,
    "POST /openai/v1/batches/{id}/cancel": batches.BatchObject,
    "POST /openai/v1/batches/plan": batches.BatchPlan,
    "GET /openai/v1/models": models.ModelList,
    "GET /openai/v1/models/{id}": models.ModelObject,
}
"""By the table of the API's operations, and of what it leaves out, by hand."""
CONTENT_ROUTES = {
    "GET /v1/runs/{uid}/outputs/{name}",
    "GET /v1/content",
    "GET /openai/v1/files/{id}/content",
}
"""They answer what users stored or made, not a structure of the API."""
NOT_JSON_ROUTES = {"GET /worker", "GET /metrics", "GET /openapi.json"}
"""A WebSocket, which is in ``tests/golden/wire``; Prometheus text; ``docs/openapi.json``."""
BODY_TYPES: dict[str, Any] = {
    **{o.name: o.body for o in _SHOWN if o.body not in (None, bytes)},
    "POST /v1/router": RouterReport,
    "POST /openai/v1/batches": batches.CreateBatchBody,
    "POST /openai/v1/batches/plan": batches.PlanBatchBody,
}
ERROR_STATUSES = {400, 401, 402, 403, 404, 405, 408, 409, 410, 413, 422, 429, 500, 503, 507}


@dataclass(frozen=True)
class Answer:
    """A stored answer.

    Attributes:
        route: method and path template.
    """

    case: str
    route: str
    status: int
    content_type: str
    body: bytes

    def __str__(self) -> str:
        return self.case

    @property
    def is_error(self) -> bool:
        return self.status >= 400

    def parts(self) -> Iterator[bytes]:
        """Returns its JSON documents."""
        yield from self.body.splitlines() if self.content_type == LINES else [self.body]


def answers() -> Iterator[Answer]:
    """Returns every stored answer."""
    for case, found in json.loads(INDEX.read_text()).items():
        route = f"{found['method']} {found['route']}"
        body = (ANSWERS / case).read_bytes()
        yield Answer(case, route, found["status"], found["contentType"], body)


def without_integers(answer: bytes) -> bytes:
    """An answer with ``0.0`` where the server has summed nothing, which gives ``0``."""
    return _SUMS_OF_NOTHING.sub(rb"\g<0>.0", answer)


_SUMS_OF_NOTHING = re.compile(rb'"(?:done_units|total_units|joules|least_joules)":0(?=[,}])')


def types() -> dict[str, Any]:
    """Returns the types of the API's answers and requests by route."""
    found = {f"{route} answers": kind for route, kind in ANSWER_TYPES.items() if kind != UNTYPED}
    found |= {f"{route} is sent": kind for route, kind in BODY_TYPES.items()}
    return found | {"errors": errors.ErrorDocument, "GET /v1/engines names": EngineContract}


def filled_texts(kinds: Mapping[str, Any]) -> dict[str, str]:
    """Returns by name the JSON of a value of each type with every field filled."""
    return {name: msgspec.json.encode(filled(kind)).decode() for name, kind in kinds.items()}


def filled(kind: Any) -> Any:
    """A value of a type, with something of its own in every field.

    It depends on the order and the types of the fields alone: not on their names in Python.
    """
    return msgspec.convert(_filled(inspect.type_info(kind), count(1)), kind)


def _filled(info: inspect.Type, numbers: Iterator[int]) -> Any:
    match info:
        case inspect.StructType() | inspect.DataclassType():
            return _filled_structure(info, numbers)
        case inspect.UnionType():
            some = next(t for t in info.types if not isinstance(t, inspect.NoneType))
            return _filled(some, numbers)
        case (
            inspect.VarTupleType()
            | inspect.ListType()
            | inspect.TupleType()
            | inspect.NamedTupleType()
        ):
            return [_filled(item, numbers) for item in _item_types(info)]
        case inspect.DictType():
            return {f"key-{next(numbers)}": _filled(info.value_type, numbers)}
        case inspect.EnumType():
            return list(info.cls)[-1].value
    return _SCALARS[type(info)](next(numbers))


def _item_types(info: inspect.Type) -> Sequence[inspect.Type]:
    match info:
        case inspect.TupleType():
            return info.item_types
        case inspect.NamedTupleType():
            return [field.type for field in info.fields]
    assert isinstance(info, inspect.VarTupleType | inspect.ListType)
    return [info.item_type]


_SCALARS: dict[type[inspect.Type], Callable[[int], Any]] = {
    inspect.AnyType: lambda number: {"any": number},
    inspect.BoolType: lambda _: True,
    inspect.IntType: lambda number: number,
    inspect.FloatType: lambda number: number + 0.5,
    inspect.StrType: lambda number: f"text-{number}",
}


def _filled_structure(
    info: inspect.StructType | inspect.DataclassType, numbers: Iterator[int]
) -> Any:
    given = {
        f.encode_name: f.default is not True
        if isinstance(f.type, inspect.BoolType)
        else _filled(f.type, numbers)
        for f in info.fields
    }
    if isinstance(info, inspect.StructType) and info.array_like:
        return list(given.values())
    if isinstance(info, inspect.StructType) and info.tag is not None:
        return {str(info.tag_field): info.tag, **given}
    return given
