"""The engine ``code.python``: runs a user's function over rows in a sandboxed process."""

from collections.abc import Mapping

from flowmesh_core.errors import IdentityError
from flowmesh_worker.engine_api import (
    DatasetInput,
    HostSettings,
    Metrics,
    Progress,
    Result,
    Rows,
    TreeInput,
    Usage,
    Work,
)
from flowmesh_worker.engines.code.answers import user_code_failed
from flowmesh_worker.engines.code.limits import SandboxResult
from flowmesh_worker.engines.code.locked_calls import LockedCalls
from flowmesh_worker.engines.engine_base import EngineBase

_TYPES: Mapping[str, tuple[type, ...]] = {
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "string": (str,),
}
_DEBUG = "see the traceback; the output of print() is in the step's log"


class Python(EngineBase):
    """The engine ``code.python``: one process for each action."""

    capacity = 1

    def __init__(self) -> None:
        self._calls: LockedCalls

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Prepares the scratch directory; there are no components."""
        self._calls = LockedCalls(settings.scratch, "code.python")

    async def run(self, work: Work, progress: Progress) -> Result:
        """Calls the function and checks that its rows have a schema."""
        inputs = {n: i.rows() for n, i in work.inputs.items() if isinstance(i, DatasetInput)}
        count = sum(map(len, inputs.values()))
        answer = await self._calls.call(
            str(work.params["code"]),
            str(work.params["function"]),
            inputs=inputs,
            args=work.params["args"],
            timeout_s=float(work.params["timeoutS"]),
            memory_mib=int(work.params["memoryMib"]),
            tenant=work.tenant,
        )
        if answer.error:
            raise user_code_failed(answer.error, answer.remedy or _DEBUG, answer.traceback)
        _require_columns(answer)
        _require_metrics(answer, work.params.get("metrics") or {})
        return Result(
            {"rows": Rows(answer.rows), "metrics": Metrics(answer.metrics)}, Usage(units=count)
        )


def _require_columns(answer: SandboxResult) -> None:
    """Infers the schema here, so that a failure is ``user-code`` and not ``bad-input``."""
    from flowmesh_core.dataset import columns_of, infer_schema  # noqa: PLC0415 - only here
    from flowmesh_core.identity import canonical_bytes  # noqa: PLC0415

    try:
        columns_of(answer.rows, infer_schema(answer.rows))
        canonical_bytes(answer.metrics)
    except IdentityError as error:
        raise user_code_failed(
            f"what the function returned: {error.reason}", error.remedy
        ) from error


def _require_metrics(answer: SandboxResult, declared: Mapping[str, str]) -> None:
    """Refuses an answer without a metric that the step declares, or with one of another type."""
    for name, kind in declared.items():
        if name not in answer.metrics:
            raise user_code_failed(
                f"the function returned no metric {name!r}, which with.metrics declares",
                "return rows, and a dict with every declared metric",
            )
        value = answer.metrics[name]
        if value is not None and type(value) not in _TYPES[kind]:
            raise user_code_failed(
                f"the metric {name!r} is {value!r}, and with.metrics declares it as {kind}",
                "return a value of that type, or declare another one",
            )
