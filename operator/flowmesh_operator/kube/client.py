"""The client for the API server: counts requests, retries within bounds, fences writes.

Every read and write of the controllers goes through it; only the watches are kopf's (``handlers``).
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
from kubernetes.aio.client import ApiClient

from flowmesh_core.errors import FlowMeshError

FIELD_MANAGER = "flowmesh"
PAGE = 500
TRIES = 6
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 4.0
REQUEST_S = 10.0
_TRANSIENT = frozenset({429, 500, 502, 503, 504})
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
NOT_FOUND, CONFLICT, FORBIDDEN, GONE = 404, 409, 403, 410
_LAST_GOOD = 299

Object = dict[str, Any]


class ApiError(FlowMeshError):
    """The API server refused a request or did not answer.

    Attributes:
        status: the HTTP status; 0 where there was no answer.
    """

    def __init__(
        self, message: str, *, status: int, where: str, retry_after_s: float = 0.0
    ) -> None:
        super().__init__(message, where=where)
        self.status = status
        self.retryable = status == 0 or status in _TRANSIENT
        self.retry_after_s = retry_after_s


class KubeClient:
    """Reads and writes objects of any kind."""

    def __init__(
        self,
        client: ApiClient,
        *,
        fence: Callable[[], None] = lambda: None,
        tries: int = TRIES,
        timeout_s: float = REQUEST_S,
        requests: "Counter[tuple[str, str]] | None" = None,
    ) -> None:
        """Uses an open connection.

        Args:
            client: the official package's client; the caller closes it.
            fence: called right before each write; raises where this replica must not write.
            tries: how often a request is sent before its error is raised.
            timeout_s: timeout of one try.
            requests: counts by (verb, resource) to add to; new ones if None.
        """
        self._client = client
        self._fence = fence
        self._tries = tries
        self._timeout_s = timeout_s
        self.requests: Counter[tuple[str, str]] = Counter() if requests is None else requests

    def fenced(self, fence: Callable[[], None]) -> "KubeClient":
        """Returns a client whose writes this fence can stop; both count in ``requests``."""
        return KubeClient(
            self._client,
            fence=fence,
            tries=self._tries,
            timeout_s=self._timeout_s,
            requests=self.requests,
        )

    def with_single_try(self, timeout_s: float) -> "KubeClient":
        """Returns a client that tries once with this timeout, for callers with a deadline."""
        return KubeClient(
            self._client,
            fence=self._fence,
            tries=1,
            timeout_s=timeout_s,
            requests=self.requests,
        )

    async def get(self, group: str, version: str, plural: str, namespace: str, name: str) -> Object:
        """Reads one object; ``namespace`` is empty for cluster-scoped kinds.

        Raises:
            ApiError: raised by every method; ``status`` is the HTTP status.
        """
        path = _path(group, version, plural, namespace, name)
        return await self._send("get", plural, "GET", path)

    async def list(
        self,
        group: str,
        version: str,
        plural: str,
        namespace: str = "",
        *,
        label_selector: str = "",
        metadata_only: bool = False,
    ) -> list[Object]:
        """Reads every object, page by page, in the state of one moment after the call.

        Args:
            group: the API group; empty for core.
            version: the group's version.
            plural: the plural resource name.
            namespace: empty for all namespaces.
            label_selector: restricts the list; empty for all objects.
            metadata_only: omits spec and status, which may be large.
        """
        path = _path(group, version, plural, namespace)
        headers = {"Accept": _METADATA_ONLY} if metadata_only else {}
        query = {"limit": str(PAGE)}
        if label_selector:
            query["labelSelector"] = label_selector
        found: list[Object] = []
        while True:
            try:
                page = await self._send("list", plural, "GET", path, query=query, headers=headers)
            except ApiError as e:
                if e.status != GONE or "continue" not in query:
                    raise
                found.clear()  # the continue token has expired: list again from the start
                del query["continue"]
                continue
            found += page.get("items") or []
            more = page.get("metadata", {}).get("continue")
            if not more:
                return found
            query["continue"] = more

    async def probe(self, group: str, version: str, plural: str) -> None:
        """Lists at most one object; the error's status is 404 where the kind does not exist."""
        path = _path(group, version, plural, "")
        await self._send("list", plural, "GET", path, query={"limit": "1"})

    async def create(
        self, group: str, version: str, plural: str, namespace: str, body: Mapping[str, Any]
    ) -> Object:
        """Creates an object; the error's status is 409 where the name is taken."""
        path = _path(group, version, plural, namespace)
        return await self._send("create", plural, "POST", path, body=body)

    async def replace(
        self,
        group: str,
        version: str,
        plural: str,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
    ) -> Object:
        """Replaces an object; the error's status is 409 where its resourceVersion has changed."""
        path = _path(group, version, plural, namespace, name)
        return await self._send("update", plural, "PUT", path, body=body)

    async def apply(
        self, group: str, version: str, plural: str, namespace: str, body: Mapping[str, Any]
    ) -> Object:
        """Applies an object server-side as its owner; the name is in its metadata."""
        path = _path(group, version, plural, namespace, body["metadata"]["name"])
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        kind = "application/apply-patch+yaml"
        return await self._send("apply", plural, "PATCH", path, query=query, body=body, kind=kind)

    async def patch(
        self,
        group: str,
        version: str,
        plural: str,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        subresource: str = "",
    ) -> Object:
        """Sends a merge patch of an object, or of a subresource such as ``scale``."""
        path = _path(group, version, plural, namespace, name, subresource)
        resource = f"{plural}/{subresource}" if subresource else plural
        query = {"fieldManager": FIELD_MANAGER}
        kind = "application/merge-patch+json"
        return await self._send("patch", resource, "PATCH", path, query=query, body=body, kind=kind)

    async def patch_status(
        self,
        group: str,
        version: str,
        plural: str,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
    ) -> Object:
        """Sends a merge patch of ``/status``; 409 where the body's resourceVersion is outdated."""
        return await self.patch(group, version, plural, namespace, name, body, subresource="status")

    async def delete(
        self, group: str, version: str, plural: str, namespace: str, name: str, *, uid: str = ""
    ) -> None:
        """Deletes an object; with a uid, only if the object still has it."""
        path = _path(group, version, plural, namespace, name)
        body: Object = {"propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        await self._send("delete", plural, "DELETE", path, body=body)

    async def _send(
        self,
        verb: str,
        resource: str,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        kind: str = "application/json",
    ) -> Object:
        pause_s = FIRST_PAUSE_S
        for tries_left in range(self._tries - 1, -1, -1):
            if method != "GET":
                self._fence()
            self.requests[verb, resource] += 1
            try:
                all_headers = {"Content-Type": kind, **(headers or {})}
                return await self._once(method, path, dict(query or {}), all_headers, body)
            except ApiError as e:
                if not e.retryable or not tries_left:
                    raise
                await asyncio.sleep(e.retry_after_s or pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        raise AssertionError("a request is sent at least once")

    async def _once(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        headers: dict[str, str],
        body: Mapping[str, Any] | None,
    ) -> Object:
        where = f"{method} {path}"
        headers.setdefault("Accept", "application/json")
        try:
            request = await self._client.param_serialize(
                method, path, query_params=list(query.items()), header_params=headers,
                auth_settings=["BearerToken"],
            )  # fmt: skip
            answer = await self._client.rest_client.request(
                request[0], request[1], headers=request[2], body=body,
                _request_timeout=self._timeout_s,
            )  # fmt: skip
            data = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            message = str(e) or type(e).__name__
            raise ApiError(f"no answer: {message}", status=0, where=where) from e
        if answer.status > _LAST_GOOD:
            raise _refusal(answer.status, data, answer.headers.get("Retry-After", ""), where)
        found: Object = json.loads(data)
        return found


def _refusal(status: int, data: bytes, retry_after: str, where: str) -> ApiError:
    try:
        message = json.loads(data).get("message", "")
    except (ValueError, AttributeError):
        message = data[:200].decode(errors="replace")
    wait_s = min(float(retry_after), LONGEST_PAUSE_S) if retry_after.isdigit() else 0.0
    return ApiError(message or f"HTTP {status}", status=status, where=where, retry_after_s=wait_s)


def _path(
    group: str, version: str, plural: str, namespace: str, name: str = "", subresource: str = ""
) -> str:
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    parts = [root]
    if namespace:
        parts.append(f"namespaces/{quote(namespace, safe='')}")
    parts.append(plural)
    if name:
        parts.append(quote(name, safe=""))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)
