"""A running fabric answers each request as the description of the API says."""

import pytest
from tests.golden.api_recorder import record
from tests.golden.openapi_schemas import is_described, problems

from flowmesh_api.v1 import routes
from flowmesh_api.v1.operations import operations

NOT_RECORDED = {f"GET {path}" for path in (routes.METRICS, routes.OPENAPI)}


@pytest.mark.slow
async def test_each_answer_of_a_running_fabric_is_as_described() -> None:
    recorder = await record(with_refusals=False)
    asked, wrong = set(), []
    for case, given in recorder.index.items():
        route, status = f"{given['method']} {given['route']}", given["status"]
        if is_described(route) or status >= 400:
            asked.add(route)
            wrong += problems(route, status, given["contentType"], recorder.bodies[case])
    assert wrong == []
    described = {operation.name for operation in operations().values() if not operation.excluded}
    assert asked >= described - NOT_RECORDED
