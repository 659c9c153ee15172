"""Workflows of the collection that need no model run, and each of their rows counts."""

from dataclasses import replace

import pytest
from tests.collection.cases import verify
from tests.collection.cases_without_models import CASES
from tests.collection.stand_ins import StandIns

import flowmesh_sdk as fm

pytestmark = pytest.mark.slow

WITH_AN_API = {"agent_simple_test", "api_batch", "api_two_stage"}


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_workflow_gives_what_its_rows_ask_for(
    name: str, client: fm.Client, server: StandIns
) -> None:
    params = {"endpoint": f"{server.url}/v1"} if name in WITH_AN_API else {}
    verify(name, replace(CASES[name], params=params), client, {})
