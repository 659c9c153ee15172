"""The types of limits that bound nothing where they are left out: a written 0 is refused.

Inside 0 stands for no limit, so a 0 that was read as it is would be the opposite of what it says.
"""

from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from flowmesh_core.spec.error_messages import RULE
from flowmesh_core.spec.fields import Duration, Memory, Usd
from flowmesh_core.spec.quantities import NOT_ZERO_RULE, budget, byte_count, seconds


def _limit(parse: Callable[[str], float]) -> AfterValidator:
    def check(text: str) -> str:
        if not parse(text):
            raise PydanticCustomError(RULE, NOT_ZERO_RULE)
        return text

    return AfterValidator(check)


DurationLimit = Annotated[Duration, _limit(seconds)]
MemoryLimit = Annotated[Memory, _limit(byte_count)]
UsdLimit = Annotated[Usd, _limit(budget)]
