"""Checks requests to services with stages against the JSON schemas that the services give.

A schema is compiled once, when a router first sees it. It is a tenant's, and the router serves
others too: a check takes a bounded number of steps, and those of large requests take turns in one
thread, while the router goes on.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec

from flowmesh_core.json_schemas import BoundedSchema, SchemaProblem, SchemaRefusedError
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.router_services import ServiceEntry

_STEPS = 500
_STEPS_A_CHARACTER = 1
_STEPS_MAX = 20_000
"""So many alternatives that do not fit take 0.16 s on a quiet core (8 µs each, as each makes an
error)."""
_INLINE_BYTES = 512
"""The largest request that is checked without the thread."""
_WHERE = "request.schema"
_log = logging.getLogger(__name__)


class _Compiled(NamedTuple):
    """A schema, once for the event loop and once for the thread: one of them serves one thread."""

    inline: BoundedSchema
    threaded: BoundedSchema


class RequestSchemas:
    """The schemas of all services of a router."""

    def __init__(self) -> None:
        """Has no schema yet."""
        self._compiled: dict[bytes, _Compiled | None] = {}
        self._of_service: dict[str, _Compiled | None] = {}
        self._thread = ThreadPoolExecutor(1, "request-schemas")

    def use(self, services: Iterable[ServiceEntry]) -> None:
        """Replaces all schemas; one that is known already is not compiled again."""
        keys = {
            s.service: msgspec.json.encode(s.request_schema) for s in services if s.request_schema
        }
        self._compiled = {
            key: self._compiled[key] if key in self._compiled else _compiled(name, key)
            for name, key in keys.items()
        }
        self._of_service = {name: self._compiled[key] for name, key in keys.items()}

    async def check(self, service: str, fields: Mapping[str, Any], size: int) -> None:
        """Checks a request.

        Args:
            service: ``namespace/name``.
            fields: the request.
            size: its bytes.

        Raises:
            OpenAiError: it does not satisfy the schema; names the field.
        """
        if self.is_immediate(service, size):
            self.check_now(service, fields, size)
            return
        schema = self._of_service[service]
        assert schema is not None
        loop, find = asyncio.get_running_loop(), schema.threaded.find_problem
        try:
            problem = await loop.run_in_executor(self._thread, find, fields, size)
        except SchemaRefusedError as error:
            raise _uncheckable(error) from None
        if problem is not None:
            raise _invalid(problem)

    def is_immediate(self, service: str, size: int) -> bool:
        """Returns whether a request of this size is checked without the thread."""
        return size <= _INLINE_BYTES or self._of_service.get(service) is None

    def check_now(self, service: str, fields: Mapping[str, Any], size: int) -> None:
        """Checks a request without the thread.

        Raises:
            OpenAiError: as :meth:`check`.
        """
        if service not in self._of_service:
            return
        schema = self._of_service[service]
        if schema is None:
            raise _unusable("The service's schema of requests cannot be used: apply it again.")
        try:
            problem = schema.inline.find_problem(fields, size)
        except SchemaRefusedError as error:
            raise _uncheckable(error) from None
        if problem is not None:
            raise _invalid(problem)


def _compiled(service: str, schema: bytes) -> _Compiled | None:
    try:
        return _Compiled(_bounded(schema), _bounded(schema))
    except SchemaRefusedError as error:
        _log.warning("%s: %s", service, error)
        return None


def _bounded(schema: bytes) -> BoundedSchema:
    given = msgspec.json.decode(schema)
    return BoundedSchema(
        given,
        _WHERE,
        steps=_STEPS,
        steps_a_character=_STEPS_A_CHARACTER,
        steps_max=_STEPS_MAX,
    )


def _invalid(problem: SchemaProblem) -> OpenAiError:
    field = (problem.field or problem.path).removeprefix("$").removeprefix(".")
    where = f"'{field}' does" if field else "The request does"
    text = f"{where} not match the service's schema: {problem.message}."
    return OpenAiError(text, param=field or None, code="invalid_field")


def _uncheckable(error: SchemaRefusedError) -> OpenAiError:
    return _unusable(f"The request cannot be checked: {error.message}.")


def _unusable(message: str) -> OpenAiError:
    return OpenAiError(message, code="schema_check")
