"""The tool ``python``: runs scripts in the sandbox of ``code.python``."""

import asyncio
from collections.abc import Mapping
from typing import Any

from flowmesh_worker.engines.agent.tools.tool import CallSite, ToolError, schema_of
from flowmesh_worker.engines.code.locked_calls import LockedCalls

_MEMORY_MIB = 256
_CHARS_MAX = 20_000
_FUNCTION = "run"
_HARNESS = """
import ast, contextlib, io

def run(source):
    out, module = io.StringIO(), {"__name__": "__main__"}
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(out):
        exec(compile(ast.Module(body, []), "script", "exec"), module)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "script", "eval"), module)
            if value is not None:
                print(repr(value))
    return [{"out": out.getvalue()[:1_000_000]}]
"""


class PythonTool:
    """The tool ``python``; no state survives a call."""

    name = "python"
    description = (
        "Runs a Python script without network or files. Returns what it prints, and the value of"
        " its last line where that is an expression."
    )
    parameters = schema_of({"code": {"type": "string", "maxLength": _CHARS_MAX}})

    def __init__(
        self, calls: LockedCalls, places: asyncio.Semaphore, timeout_s: float, tenant: str
    ) -> None:
        """Creates the tool.

        Args:
            calls: the sandbox.
            places: limits how many scripts run at once.
            timeout_s: for each script.
            tenant: whose scripts these are.
        """
        self._calls = calls
        self._places = places
        self._timeout_s = timeout_s
        self._tenant = tenant

    async def call(self, arguments: Mapping[str, Any], place: CallSite) -> str:
        """Returns what the script printed."""
        async with self._places:
            answer = await self._calls.call(
                _HARNESS,
                _FUNCTION,
                inputs={},
                args={"source": arguments["code"]},
                timeout_s=self._timeout_s,
                memory_mib=_MEMORY_MIB,
                tenant=self._tenant,
            )
        if answer.error:
            raise ToolError(answer.error)
        return str(answer.rows[0]["out"]) or "(it printed nothing)"
