"""Checks before an engine loads that the columns a step names exist in its rows, chats as chats.

The compiler refuses what it can know at admission; the columns of a data set that a step produces
are known only here.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from flowmesh_core.catalog.contract import EngineContract, Param
from flowmesh_core.catalog.templates import undeclared
from flowmesh_core.catalog.verifiers import FORMAT as VERIFIERS
from flowmesh_core.catalog.verifiers import columns_named
from flowmesh_core.dataset import ColumnType
from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import FailureReport
from flowmesh_worker.ipc.frames import HostInput

_CHATS = (ColumnType.JSON, ColumnType.NULL)
"""The types of a column of chats; one without any chat has no type yet."""


def missing_column_failure(
    contract: EngineContract | None, params: Mapping[str, Any], inputs: Mapping[str, HostInput]
) -> FailureReport | None:
    """Returns the failure of an attempt whose parameters name missing columns, or None.

    Args:
        contract: the engine's.
        params: the attempt's.
        inputs: fetched; the row port's manifest lists the columns.
    """
    rows = inputs.get(contract.row_port) if contract is not None and contract.row_port else None
    if contract is None or rows is None or rows.manifest is None:
        return None
    columns = rows.manifest.schema.names
    types = rows.manifest.schema.types()
    if not rows.manifest.row_count:
        return None  # without rows, the producing step may not have known all of its columns
    for param in contract.params:
        for place, name in _named_by(param, params.get(param.name)):
            if name not in columns:
                return FailureReport(
                    FailureKind.BAD_INPUT.value,
                    f"with.{place} names {name!r}, and input {contract.row_port!r} has no such "
                    "column",
                    f"its columns are {', '.join(columns) or '(none)'}",
                )
            if param.format == "chat-rows" and types[name] not in _CHATS:
                return FailureReport(
                    FailureKind.BAD_INPUT.value,
                    f"column {name!r} holds {_shown_type(types[name])}; {param.name} takes a list"
                    " of {role, content}",
                    "name a column of chats, or write a prompt with the text",
                )
    return None


def _shown_type(kind: ColumnType | str) -> str:
    return "strings" if kind == ColumnType.STRING else f"values of type {kind}"


def _named_by(param: Param, value: Any) -> Iterator[tuple[str, str]]:
    if param.format == VERIFIERS:
        for inner, name in columns_named(value):
            yield param.name + inner, name
    yield from _named(value, param.name, template=bool(param.template), columns=bool(param.columns))


def _named(value: Any, place: str, *, template: bool, columns: bool) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if template:
            yield from ((place, name) for name in undeclared(value)[1])
        elif columns:
            yield place, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _named(inner, f"{place}.{key}", template=template, columns=columns)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _named(inner, f"{place}[{number}]", template=template, columns=columns)
