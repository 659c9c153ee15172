"""Checks what a stage asks of ``retrieve.topk``: when a service is applied, and in the engine."""

from collections.abc import Mapping
from typing import Any

from flowmesh_core.openai.parameters import (
    Check,
    choice,
    integer,
    require_list,
    require_members,
    text,
)

K_MAX = 10_000
_COLUMNS_MAX = 64


def _columns(value: Any, param: str) -> None:
    require_list(value, param, _COLUMNS_MAX)
    for index, name in enumerate(value):
        text(name, f"{param}[{index}]")


TOPK_PARAMETERS: dict[str, Check] = {
    "k": integer(1, K_MAX),
    "columns": _columns,
    "metric": choice("cosine", "dot", "l2"),
    "vector": text,
    "corpusVector": text,
}
"""Parameters of a search, as ``retrieve.topk`` has them in its contract."""


def check_topk(params: Mapping[str, Any]) -> None:
    """Checks the parameters of a search.

    Raises:
        OpenAiError: names the parameter.
    """
    require_members(params, "", TOPK_PARAMETERS)
