"""Uploads over the API: where they may go."""

import pytest
from tests.flowmesh_control.fabric import Fabric


@pytest.mark.parametrize("namespace", ["Team A", "../x", "team_a", "*", "a" * 64])
async def test_a_namespace_that_no_workflow_can_have_is_refused(
    fabric: Fabric, namespace: str
) -> None:
    for path in ("/v1/datasets?name=n.jsonl&", "/v1/trees?kind=model&"):
        told = await fabric.call(
            "POST", f"{path}namespace={namespace}", data=b'{"a": 1}', status=400
        )
        assert "is no namespace" in told["error"]["message"]
        assert "small letters, digits and -" in told["error"]["remedy"]


async def test_a_good_namespace_gets_a_reference(fabric: Fabric) -> None:
    query = "namespace=team-a&name=n.jsonl"
    found = await fabric.call("POST", f"/v1/datasets?{query}", data=b'{"a": 1}', status=201)
    assert found["rows"] == 1
