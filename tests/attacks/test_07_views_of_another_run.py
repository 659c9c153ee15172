"""Attacker: T2, a tenant with a token of the API, who knows the uid of another tenant's run.

Action: asks for every view of the run: status, events, logs, reasons, receipt, outputs, lineage.
Must not happen: an answer differs from that for a run that does not exist.
"""

from pathlib import Path

from tests.attacks.tenants import ATTACKER, OWNER, tenants
from tests.flowmesh_control.fabric import Fabric

VIEWS = (
    "", "/watch", "/logs", "/logs?step=one", "/why?step=one", "/explain?step=one", "/receipt",
    "/outputs", "/outputs/out", "/made", "/openlineage", "/trace", "/lineage?name=out",
    "/outputs/one.metrics", "/lineage/rows?name=out", "/verify?output=out",
)  # fmt: skip


def routes_of_runs(fabric: Fabric) -> set[str]:
    """Returns the views that the control plane serves of one run."""
    assert fabric.control._runner is not None
    routes = fabric.control._runner.app.router.routes()
    paths = {r.resource.canonical for r in routes if r.method == "GET" and r.resource}
    start = "/v1/runs/{uid}"
    return {p.removeprefix(start).replace("{name}", "out") for p in paths if p.startswith(start)}


async def test_a_run_of_another_namespace_looks_like_none(tmp_path: Path) -> None:
    async with tenants(tmp_path) as fabric:
        assert routes_of_runs(fabric) <= {view.partition("?")[0] for view in VIEWS}
        uid = await fabric.run(OWNER)
        for view in VIEWS:
            status, answer = await fabric.answer(ATTACKER, f"/v1/runs/{uid}{view}")
            absent = await fabric.answer(ATTACKER, f"/v1/runs/nothing{view}")
            assert (status, answer.replace(uid.encode(), b"nothing")) == absent, view
            assert status == 404
        # Its owner sees each that does not wait for the end of the run.
        for view in ("", "/logs", "/why?step=one", "/explain?step=one", "/receipt", "/trace"):
            assert (await fabric.answer(OWNER, f"/v1/runs/{uid}{view}"))[0] == 200, view


async def test_no_list_names_a_run_of_another_namespace(tmp_path: Path) -> None:
    async with tenants(tmp_path) as fabric:
        uid = (await fabric.run(OWNER)).encode()
        lists = ("/v1/runs", "/v1/runs?namespace=team-a", "/v1/receipts", "/v1/audits",
                 "/v1/quarantine")  # fmt: skip
        for path in lists:
            assert uid not in (await fabric.answer(ATTACKER, path))[1], path
        assert uid in (await fabric.answer(OWNER, "/v1/runs"))[1]
