"""Requests to a service with stages satisfy its JSON schema; else the error names the field."""

from typing import Any

import pytest

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.router_services import RouterServices, ServiceEntry
from flowmesh_serving.service_table import ServiceTable

SCHEMA = {
    "type": "object",
    "required": ["question"],
    "properties": {
        "question": {"type": "string", "minLength": 1, "maxLength": 20, "pattern": "^[^<]*$"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "additionalProperties": False,
}


def table(schema: dict[str, Any]) -> ServiceTable:
    found = ServiceTable()
    found.use(RouterServices((ServiceEntry("team-a/ask", "ask", request_schema=schema),)))
    return found


async def check(request: dict[str, Any], schema: dict[str, Any] = SCHEMA, size: int = 100) -> None:
    await table(schema).requests.check("team-a/ask", request, size)


@pytest.mark.parametrize("size", [100, 10_000])
async def test_a_request_that_satisfies_the_schema_passes(size: int) -> None:
    await check({"question": "Why?", "tags": ["a"]}, size=size)
    await table(SCHEMA).requests.check("team-a/other", {"anything": 1}, size)


@pytest.mark.parametrize("size", [100, 10_000])
@pytest.mark.parametrize(
    ("request_", "param", "message"),
    [
        ({}, "question", "'question' is a required property"),
        ({"question": 1}, "question", "1 is not of type 'string'"),
        ({"question": "x" * 21}, "question", "is too long"),
        ({"question": "<b>"}, "question", "does not match"),
        ({"question": "Why?", "tags": ["a", 2]}, "tags[1]", "2 is not of type 'string'"),
        ({"question": "Why?", "more": 1}, None, "additional properties are not allowed: 'more'"),
    ],
)
async def test_an_error_names_the_field(
    request_: dict[str, Any], param: str | None, message: str, size: int
) -> None:
    with pytest.raises(OpenAiError) as raised:
        await check(request_, size=size)
    error = raised.value
    assert (error.status, error.code, error.param) == (400, "invalid_field", param)
    assert message in error.message


def test_a_schema_is_compiled_once_for_all_lists_that_have_it() -> None:
    found = table(SCHEMA)
    before = dict(found.requests._of_service)
    found.use(
        RouterServices((ServiceEntry("team-a/ask", "ask", timeout_s=3, request_schema=SCHEMA),))
    )
    assert found.requests._of_service["team-a/ask"] is before["team-a/ask"]
    found.use(RouterServices(()))
    assert not found.requests._compiled


async def test_a_schema_that_a_router_cannot_use_refuses_requests_of_its_service_only() -> None:
    wrong, right = {"type": "objekt"}, {"type": "object"}
    found = ServiceTable()
    found.use(
        RouterServices(
            (
                ServiceEntry("team-a/ask", "ask", request_schema=wrong),
                ServiceEntry("team-b/ask", "ask", request_schema=right),
            )
        )
    )
    await found.requests.check("team-b/ask", {"x": 1}, 10)
    with pytest.raises(OpenAiError, match="apply it again"):
        await found.requests.check("team-a/ask", {"x": 1}, 10)
