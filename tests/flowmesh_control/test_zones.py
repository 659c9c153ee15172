"""Work goes to the zone of a worker that has its content; real workers, which say their zones."""

import pytest
from tests.flowmesh_control.fabric import Fabric, workflow

pytestmark = pytest.mark.slow
ZONES = {"local-far": "b", "local-holder": "a", "local-near": "a"}


async def test_work_goes_to_the_zone_that_has_its_content(fabric: Fabric) -> None:
    for name, zone in ZONES.items():
        role = "holder" if name == "local-holder" else "user"
        fabric.worker(name, "--zone", zone, "--label", f"role={role}")
    spec = {
        "steps": [
            {
                "name": "make",
                "uses": "data.sql",
                "with": {"query": "select md5(n::text) as t from range(20000) r(n)"},
                "resources": {"labels": {"role": "holder"}},
            },
            {
                "name": "use",
                "uses": "data.sql",
                "inputs": {"t": "make.rows"},
                "with": {"query": "select max(t) as t from t"},
                "resources": {"labels": {"role": "user"}},
            },
        ],
        "outputs": {"most": "use.rows"},
    }
    uid = await fabric.submit(workflow("zones", spec))
    assert (await fabric.ended(uid)).phase == "Succeeded"
    explained = await fabric.call("GET", f"/v1/runs/{uid}/explain?step=use")
    (attempt,) = explained["attempts"]
    assert attempt["worker"] == "local-near"
    locality = {name: scores[3] for name, *scores in attempt["placed"]}
    assert locality == {"local-near": 0.2, "local-far": 0.0}
