"""The tool ``http``: GET requests to the hosts that the workflow lists, as in ``http.request``."""

from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_worker.engines.agent.tools.tool import CallSite, ToolError, schema_of
from flowmesh_worker.engines.http.call import Call, CallError
from flowmesh_worker.engines.http.client import HttpClient
from flowmesh_worker.engines.http.credentials import KEY_HEADER
from flowmesh_worker.engines.http.row_calls import idempotency_key

_CHARS_MAX = 2000
_BYTES_MAX = 1 << 20
_RETRIES = 1


class HttpTool:
    """The tool ``http``."""

    name = "http"

    def __init__(self, client: HttpClient, hosts: Sequence[str], timeout_s: float) -> None:
        """Creates the tool.

        Args:
            client: sends the requests.
            hosts: names of the hosts that it may call.
            timeout_s: for each try.
        """
        self._client = client
        self._hosts = frozenset(h.lower() for h in hosts)
        self._timeout_s = timeout_s
        self.description = f"Gets a page by its URL from {' or '.join(sorted(self._hosts))}."
        self.parameters = schema_of({"url": {"type": "string", "maxLength": _CHARS_MAX}})

    async def call(self, arguments: Mapping[str, Any], place: CallSite) -> str:
        """Returns the status and the page as text."""
        call = Call(
            "GET",
            arguments["url"].strip(),
            {KEY_HEADER: idempotency_key(place.action_id, place.name)},
            timeout_s=self._timeout_s,
            max_bytes=_BYTES_MAX,
            retries=_RETRIES,
            repeatable=True,
            hosts=self._hosts,
        )
        try:
            answer = await self._client.call(call)
        except CallError as error:
            raise ToolError(error.message) from None
        return f"HTTP status {answer.status}\n{answer.text}"
