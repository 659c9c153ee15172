"""The control API's JSON does not change, even if its types move."""

import json
import re
from typing import Any

import msgspec
import pytest
from tests.attacks.by_hand import place
from tests.golden.api import (
    ANSWER_TYPES,
    ANSWERS,
    BODY_TYPES,
    CONTENT_ROUTES,
    ERROR_STATUSES,
    FILLED,
    JSON,
    LINES,
    NOT_JSON_ROUTES,
    Answer,
    answers,
    filled_texts,
    types,
    without_integers,
)

from flowmesh_api.v1.errors import ErrorDocument
from flowmesh_api.v1.why import Why
from flowmesh_control.api import responses as answering
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.sharing.scopes import ScopePlan

STORED = list(answers())
TYPES = types()


def _decoded(answer: Answer) -> list[Any]:
    kind = ErrorDocument if answer.is_error else ANSWER_TYPES[answer.route]
    return [msgspec.json.decode(part, type=kind) for part in answer.parts()]


@pytest.mark.parametrize(
    "answer", [a for a in STORED if a.is_error or a.route not in CONTENT_ROUTES], ids=str
)
def test_a_stored_answer_decodes_and_encodes_to_itself(answer: Answer) -> None:
    assert answer.content_type in (JSON, LINES)
    encoded = [msgspec.json.encode(value) for value in _decoded(answer)]
    assert encoded == [without_integers(part) for part in answer.parts()]


@pytest.mark.parametrize("name", TYPES)
def test_a_filled_value_of_each_type_has_the_recorded_json(name: str) -> None:
    recorded = json.loads(FILLED.read_text())[name]
    assert filled_texts({name: TYPES[name]})[name] == recorded
    decoded = msgspec.json.decode(recorded, type=TYPES[name])
    assert msgspec.json.encode(decoded).decode() == recorded


def test_every_filled_value_is_of_a_type_of_the_api() -> None:
    assert json.loads(FILLED.read_text()).keys() == TYPES.keys()


async def test_every_route_of_the_app_has_a_stored_answer() -> None:
    async with place() as house:
        runner = house.control._runner
        assert runner is not None
        routes = {
            f"{route.method} {route.resource.canonical}"
            for route in runner.app.router.routes()
            if route.method != "HEAD" and route.resource is not None
        }
    stored = {answer.route for answer in STORED if not answer.is_error}
    assert routes - NOT_JSON_ROUTES == stored
    assert routes == ANSWER_TYPES.keys() | CONTENT_ROUTES | NOT_JSON_ROUTES
    assert routes >= BODY_TYPES.keys()


def test_every_error_status_of_the_api_has_a_stored_answer() -> None:
    assert {answer.status for answer in STORED if answer.is_error} == ERROR_STATUSES
    assert {status for _, status in answering._STATUS} <= ERROR_STATUSES
    codes = {v.error.code for a in STORED if a.is_error for v in _decoded(a)}
    assert codes == {"", *(code for _, code in answering._CODES)}


def test_the_engines_are_contracts_with_the_workers_that_offer_each() -> None:
    (answer,) = [a for a in STORED if a.route == "GET /v1/engines"]
    for shown in msgspec.json.decode(answer.body):
        offered = shown.pop("offered_by")
        assert isinstance(offered, list)
        contract = msgspec.convert(shown, EngineContract)
        made = msgspec.json.decode(msgspec.json.encode(contract))
        assert made == shown
        assert list(made) == list(shown)


def test_the_scopes_of_a_live_step_decode_as_a_scope_plan() -> None:
    shown = [v for a in STORED if a.route.endswith("/why") and not a.is_error for v in _decoded(a)]
    live = [why.scopes for why in shown if isinstance(why, Why) and why.scopes]
    assert live
    for scopes in live:
        plan = msgspec.convert(scopes, ScopePlan)
        assert msgspec.json.encode(plan) == msgspec.json.encode(scopes)


def test_the_stored_answers_match_the_index() -> None:
    assert {path.name for path in ANSWERS.iterdir()} == {answer.case for answer in STORED}


def test_stored_answers_contain_no_local_path() -> None:
    for answer in STORED:
        assert not re.search(rb"/(tmp|home|root|work|Users)/", answer.body), answer.case
