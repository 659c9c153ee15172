"""Attacker: T2, a tenant with a token of the API, who is no administrator.

Action: asks for every view of the fabric, and changes policies, keys, caches and workers.
Must not happen: any of them is answered, or changes anything.
"""

from pathlib import Path
from typing import Any

from tests.attacks.tenants import ADMIN, ATTACKER, tenants
from tests.flowmesh_control.rights import EDIT

FABRIC: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/v1/workers", None),
    ("POST", "/v1/workers/w1/drain", None),
    ("GET", "/v1/fabric", None),
    ("GET", "/v1/policies", None),
    ("PUT", "/v1/policies", []),
    ("GET", "/v1/cache/stats", None),
    ("POST", "/v1/cache/gc", None),
    ("POST", "/v1/cache/purge", {"scope": "ns:team-b"}),
    ("DELETE", "/v1/quarantine/abc", None),
    ("GET", "/v1/withheld", None),
    ("POST", "/v1/router/callers", {"token": "a.b.c", "namespace": "team-b"}),
    ("POST", "/v1/withheld", {"results": {"worker": "w1"}}),
    ("POST", "/v1/withheld/release", {"results": {"worker": "w1"}}),
    ("GET", "/v1/keys", None),
    ("POST", "/v1/keys/reseal", None),
    ("POST", "/v1/keys/retire", {"id": 0}),
    ("GET", "/v1/request-log", None),
    ("GET", "/v1/request-log/check", None),
    ("POST", "/v1/runs/x/resume", {}),
    ("GET", "/v1/router", None),
    ("POST", "/v1/router", {"router": "a", "age_s": 1.0}),
    ("GET", "/metrics", None),
)
OPEN = {"/worker", "/healthz", "/openapi.json"}
OPEN_TO_USERS = {
    "/v1/engines",
    "/v1/runs",
    "/v1/receipts",
    "/v1/charges",
    "/v1/audits",
    "/v1/quarantine",
}
# Rights in each namespace that there is are no rights on the fabric.
RIGHTS = {ADMIN: {"*": EDIT}, ATTACKER: {"team-b": EDIT, "team-a": EDIT, "default": EDIT}}


async def test_a_tenant_sees_and_changes_nothing_of_the_fabric(tmp_path: Path) -> None:
    async with tenants(tmp_path, RIGHTS) as fabric:
        policies = await fabric.ask(ADMIN, "GET", "/v1/policies")
        for method, path, body in FABRIC:
            told = await fabric.ask(ATTACKER, method, path, body=body, status=403)
            assert told["error"]["message"].startswith(f"user {ATTACKER!r} may not "), path
        assert await fabric.ask(ADMIN, "GET", "/v1/policies") == policies
        assert await fabric.ask(ADMIN, "GET", "/v1/workers") == []
        assert b"flowmesh_" in await fabric.ask(ADMIN, "GET", "/metrics")
        assert await fabric.ask(ADMIN, "PUT", "/v1/policies", body=policies) is not None
        assert await fabric.ask(ATTACKER, "GET", "/v1/engines")


async def test_the_table_has_every_path_without_a_namespace(tmp_path: Path) -> None:
    async with tenants(tmp_path, RIGHTS) as fabric:
        assert fabric.control._runner is not None
        routes = fabric.control._runner.app.router.routes()
        served = {r.resource.canonical for r in routes if r.resource and r.method != "HEAD"}
        named = {path for path in served if "{uid}" in path}
        queried = {
            path
            for path in served
            if path.startswith(("/v1/lineage", "/v1/content", "/v1/services"))
        }
        queried |= {"/v1/datasets", "/v1/trees", "/v1/quota", "/v1/plan", "/v1/revoke"}
        # Those of OpenAI's API have the namespace in a header: test_61_batches_of_another.
        queried |= {path for path in served if path.startswith("/openai/")}
        rest = served - named - queried - OPEN_TO_USERS - OPEN
        assert len(rest) >= 11
        table = {path for _, path, _ in FABRIC}
        for path in rest:
            start = path.partition("{")[0]
            assert any(given.startswith(start) for given in table), path
