"""Creates the tools of an action; tables, indexes and clients are reused between actions."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flowmesh_core.catalog.builtin.agent import AGENT
from flowmesh_core.dataset import dataset_digest
from flowmesh_worker.engine_api import DatasetInput, Work
from flowmesh_worker.engines.agent.lru_cache import LruCache
from flowmesh_worker.engines.agent.tools.calculator import CalculatorTool
from flowmesh_worker.engines.agent.tools.tool import Tool
from flowmesh_worker.engines.agent.tools.toolbox import Toolbox
from flowmesh_worker.engines.code.locked_calls import LockedCalls
from flowmesh_worker.engines.egress.addresses import REQUEST_ALLOW_VARIABLE, AddressPolicy
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.http.client import HttpClient

_SCRIPTS_AT_ONCE = 2
_OWN_PORTS = frozenset(p.name for p in AGENT.inputs)


class ToolFactory:
    """Creates the tools of one engine instance."""

    def __init__(self, scratch: Path) -> None:
        """Creates a factory without tools; ``scratch`` is for directories of models' scripts."""
        self._scratch = scratch
        self._cache = LruCache()
        self._client: HttpClient | None = None
        self._scripts: tuple[LockedCalls, asyncio.Semaphore] | None = None

    async def toolbox(self, work: Work) -> Toolbox:
        """Returns the tools of one action.

        Raises:
            AttemptError: bad input or unplaceable; a tool lacks its data, host names or sandbox.
        """
        params = work.params
        data = {
            name: given
            for name, given in work.inputs.items()
            if name not in _OWN_PORTS and isinstance(given, DatasetInput)
        }
        names = list(dict.fromkeys(str(t) for t in params["tools"]))
        if not names:
            raise bad_input("with.tools is empty", "name a tool, or use llm.generate")
        tools = [await self._tool(name, work, data) for name in names]
        return Toolbox(tools, int(params["maxResultChars"]))

    async def close(self) -> None:
        """Closes the connections of tools."""
        if self._client is not None:
            await self._client.close()

    async def _tool(self, name: str, work: Work, data: Mapping[str, DatasetInput]) -> Tool:
        params = work.params
        timeout_s = float(params["toolTimeoutS"])
        if name in ("sql", "retrieve") and not data:
            raise bad_input(
                f"the tool {name!r} has no data sets to work on",
                "connect some under names of your choice, beside model and rows",
            )
        match name:
            case "calculator":
                return CalculatorTool()
            case "sql":
                return await self._sql(data, timeout_s)
            case "retrieve":
                return await self._retrieve(data)
            case "python":
                return self._python(timeout_s, work.tenant)
            case "http":
                return self._http(params, timeout_s)
        raise bad_input(f"{name!r} is not a tool", f"use one of {', '.join(_all_tools())}")

    async def _sql(self, data: Mapping[str, DatasetInput], timeout_s: float) -> Tool:
        from flowmesh_worker.engines.agent.tools.sql import (  # noqa: PLC0415 - DuckDB is heavy
            SqlTool,
            TableDatabase,
        )

        key = ("sql", *((n, dataset_digest(d.manifest)) for n, d in sorted(data.items())))
        return SqlTool(await self._cache.get(key, lambda: TableDatabase(data)), timeout_s)

    async def _retrieve(self, data: Mapping[str, DatasetInput]) -> Tool:
        from flowmesh_worker.engines.agent.tools.retrieve import (  # noqa: PLC0415 - as needed
            RetrieveTool,
            RowIndex,
        )

        async def index(given: DatasetInput) -> RowIndex:
            key = ("retrieve", dataset_digest(given.manifest))
            return await self._cache.get(key, lambda: RowIndex(given))

        return RetrieveTool({name: await index(given) for name, given in data.items()})

    def _python(self, timeout_s: float, tenant: str) -> Tool:
        from flowmesh_worker.engines.agent.tools.python import PythonTool  # noqa: PLC0415 - as needed

        if self._scripts is None:
            calls = LockedCalls(self._scratch, "the tool python")
            self._scripts = (calls, asyncio.Semaphore(_SCRIPTS_AT_ONCE))
        return PythonTool(*self._scripts, timeout_s, tenant)

    def _http(self, params: Mapping[str, Any], timeout_s: float) -> Tool:
        from flowmesh_worker.engines.agent.tools.http import HttpTool  # noqa: PLC0415 - as needed

        hosts = [str(h) for h in params["httpHosts"]]
        if not hosts:
            raise bad_input(
                "the tool 'http' has no allowed host", "list some: httpHosts: [docs.example.com]"
            )
        if self._client is None:
            self._client = HttpClient(AddressPolicy.from_environment(REQUEST_ALLOW_VARIABLE))
        return HttpTool(self._client, hosts, timeout_s)


def _all_tools() -> tuple[str, ...]:
    param = AGENT.param("tools")
    return param.items if param is not None else ()
