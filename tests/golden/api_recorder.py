"""Records the control API's answers: ``python -m tests.golden.api_recorder --write``.

A control plane in this process with a real worker runs a few small workflows: one that succeeds,
the same again, one that joins it, one that fails, one whose results do not repeat and its audit,
one that waits and one that runs for long. Every route is asked once or more, and every error
status that the API has. Times, ids and digests differ with each recording; the test only reads.
"""

import asyncio
import io
import json
import re
import socket
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, FormData
from tests.flowmesh_control.fabric import (
    API_TOKEN,
    KEY,
    Fabric,
    control_plane,
    machine_of,
    workflow,
)
from tests.flowmesh_control.rights import EDIT, VIEW, TableOfUsers
from tests.flowmesh_control.runs.test_repin import catalog
from tests.flowmesh_control.runs.test_suspended_runs import die
from tests.flowmesh_control.waiting import until
from tests.golden.api import ANSWERS, FILLED, INDEX, filled_texts, types

from flowmesh_api.v1.quotas import Quota
from flowmesh_control.api import connections
from flowmesh_control.api.request_body import COMMAS_MAX
from flowmesh_control.control_plane import ControlPlane
from flowmesh_control.quotas.rates import RequestRate
from flowmesh_control.records.keys import final_key
from flowmesh_control.settings import ControlSettings
from flowmesh_core.errors import StoreAccessError, StoreFullError, StoreUnavailableError
from flowmesh_core.machine.events import CancelRequested
from flowmesh_core.sharing.key_ring import KeyRing

SETTINGS = ControlSettings(router_url="https://flowmesh-router:8480/v1")
NUMBERS = [{"n": i, "word": f"w{i}"} for i in range(80)]
CODE = "def main():\n    print('a line of a step')\n    return [{'n': 1}]"


def _step(name: str, uses: str, inputs: Mapping[str, str] | None = None, **given: Any) -> Any:
    return {"name": name, "uses": uses, "inputs": dict(inputs or {}), "with": given}


def _double() -> dict[str, Any]:
    summed = "select sum(n) as total from rows"
    doubled = "select n, word, n * 2 as twice from rows order by n"
    return {
        "inputs": {"numbers": {"rows": NUMBERS}},
        "steps": [
            _step("double", "data.sql", {"rows": "inputs.numbers"}, query=doubled),
            _step("map", "test.map", {"rows": "double.rows"}, value="x"),
            _step("sum", "data.sql", {"rows": "map.rows"}, query=summed),
            _step("say", "code.python", code=CODE),
        ],
        "outputs": {"mapped": "map.rows", "total": "sum.rows", "count": "map.metrics"},
    }


def _sleeping(seconds: float, value: str) -> dict[str, Any]:
    return {
        "steps": [_step("sleep", "test.sleep", seconds=seconds, value=value)],
        "outputs": {"slept": "sleep.metrics"},
    }


_FAILING = {
    "steps": [
        _step("one", "data.sql", query="select 1 as n"),
        {
            **_step("bad", "test.fail", kind="bad-input", message="the rows are empty"),
            "when": "steps.one.rows.count > 0",
        },
        _step("after", "test.noop", {"after": "bad.metrics"}),
    ],
    "outputs": {"rows": "one.rows", "none": "after.metrics"},
}
_DRIFTING = {
    "steps": [
        _step("one", "test.drift", family="a"),
        _step("two", "data.sql", query="select 2 as n"),
    ],
    "outputs": {"one": "one.metrics"},
}
_WAITING = {
    "steps": [
        {**_step("big", "test.noop", value="big"), "resources": {"memory": "900Gi"}},
        _step("then", "test.noop", {"after": "big.metrics"}),
    ],
    "outputs": {"then": "then.metrics"},
}


@dataclass
class Recorder:
    """Asks a control plane, and keeps what it answers.

    Attributes:
        folder: of the stores; written as ``/data``, where an answer names a path.
        index: by case: method, route, status and content type; ``bodies`` what came.
    """

    folder: str
    index: dict[str, dict[str, Any]] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)

    async def ask(
        self,
        fabric: Fabric,
        case: str,
        route: str,
        query: str = "",
        *,
        body: Any = None,
        data: Any = None,
        token: str = API_TOKEN,
        status: int = 200,
        **values: str,
    ) -> Any:
        """Sends ``METHOD /path/{name}``, and returns the answer."""
        method, template = route.split()
        path = template.format(**values) + (f"?{query}" if query else "")
        async with fabric.http.request(
            method,
            fabric.control.url + path,
            data=json.dumps(body) if body is not None else data,
            headers={"Authorization": f"Bearer {token}"} if token else {},
        ) as response:
            content = await response.read()
            assert response.status == status, (case, response.status, content[:2000])
        assert case not in self.index, case
        kind = response.content_type
        self.index[case] = {
            "method": method, "route": template, "status": status, "contentType": kind,
        }  # fmt: skip
        self.bodies[case] = content.replace(self.folder.encode(), b"/data")
        return json.loads(content) if kind == "application/json" else content

    def write(self) -> None:
        """Writes the answers and removes all earlier ones."""
        ANSWERS.mkdir(parents=True, exist_ok=True)
        for path in ANSWERS.iterdir():
            path.unlink()
        for case, content in self.bodies.items():
            (ANSWERS / case).write_bytes(content)
        INDEX.write_text(json.dumps(self.index, indent=1, sort_keys=True) + "\n")


@asynccontextmanager
async def _serving(root: Path, control: ControlPlane | None = None) -> AsyncIterator[Fabric]:
    control = control or control_plane(root, settings=SETTINGS)
    await control.start()
    async with _client(root, control) as fabric:
        yield fabric


@asynccontextmanager
async def _client(root: Path, control: ControlPlane) -> AsyncIterator[Fabric]:
    async with ClientSession() as http:
        fabric = Fabric(root, control, http)
        try:
            yield fabric
        finally:
            await asyncio.to_thread(fabric.close)
            await control.stop()


async def record(*, with_refusals: bool = True) -> Recorder:
    """Asks every route, and by default for each error that needs a control plane of its own."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        recorder = Recorder(folder)
        roots = (Path(folder, f"{n}") for n in range(100))
        async with _serving(next(roots)) as fabric:
            fabric.worker("local-w1", "--allow-user-code", "--power-w", "90", "--zone", "zone-a")
            await until(lambda: machine_of(fabric.control).state.workers)
            await _fabric(recorder, fabric)
            await _services(recorder, fabric)
            await _uploads(recorder, fabric)
            uid = await _runs(recorder, fabric)
            await _lineage(recorder, fabric, uid)
            await _audits(recorder, fabric)
            await _live(recorder, fabric)
            await _errors(recorder, fabric, uid)
            await _cache(recorder, fabric)
            await _openai(recorder, fabric)
        await _keys(recorder, next(roots))
        await _repinned(recorder, next(roots))
        await _resumed(recorder, next(roots))
        if with_refusals:
            await _refused(recorder, next(roots), next(roots), next(roots))
    return recorder


async def _keys(recorder: Recorder, root: Path) -> None:
    """Rotates the master keys of a new store, and retires the former one."""
    async with _serving(root, control_plane(root, key_ring=KEY)):
        pass
    rotated = KeyRing((("01", b"n" * 32), *KEY.secrets))
    async with _serving(root, control_plane(root, key_ring=rotated)) as fabric:
        await recorder.ask(fabric, "keys", "GET /v1/keys")
        await recorder.ask(fabric, "keys.reseal", "POST /v1/keys/reseal")
        body = {"key_id": "00", "lose_results": False}
        await recorder.ask(fabric, "keys.retire", "POST /v1/keys/retire", body=body)
        await recorder.ask(fabric, "request-log.show", "GET /v1/request-log")
        await recorder.ask(fabric, "request-log.check", "GET /v1/request-log/check")


async def _services(recorder: Recorder, fabric: Fabric) -> None:
    component = {"uses": "llm.generate", "inputs": {"model": "inputs.base"}}
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": "ask", "namespace": "team-a"},
        "spec": {
            "inputs": {"base": {"model": "smollm2-135m-instruct"}},
            "components": {"llm": component},
        },
    }
    body = {"document": document}
    await recorder.ask(fabric, "services.apply", "POST /v1/services", body=body)
    space = "namespace=team-a"
    await recorder.ask(fabric, "services.list", "GET /v1/services", space)
    await recorder.ask(fabric, "services.show", "GET /v1/services/{name}", space, name="ask")
    await recorder.ask(fabric, "services.why", "GET /v1/services/{name}/why", space, name="ask")
    tokens = "/v1/services/{name}/tokens"
    given = {"valid_s": 3600.0}
    made = await recorder.ask(
        fabric, "services.tokens.create", f"POST {tokens}", space, body=given, name="ask"
    )
    await recorder.ask(fabric, "services.tokens.list", f"GET {tokens}", space, name="ask")
    await recorder.ask(fabric, "router", "GET /v1/router")
    counts = {"came": 3, "ended": 2, "missed": 1, "refused": 1, "latency": [0, 1, 1]}
    unknown = {"replica_id": "team-a/ask/llm/r1/0", "sizes": [1], "seconds": [0.1], "cap": 1}
    reported = [{"service": "team-a/ask", **counts, "replicas": [unknown]}]
    report = {"router": "a1b2c3d4e5f60718", "age_s": 5.0, "services": reported}
    await recorder.ask(fabric, "router.report", "POST /v1/router", body=report)
    capacity = "GET /v1/services/{name}/capacity"
    await recorder.ask(fabric, "services.capacity", capacity, space, name="ask")
    asked = {"token": API_TOKEN, "namespace": "team-a"}
    await recorder.ask(fabric, "router.callers", "POST /v1/router/callers", body=asked)
    one = {"name": "ask", "id": made["id"]}
    route = f"DELETE {tokens}/{{id}}"
    await recorder.ask(fabric, "services.tokens.revoke", route, space, **one)
    await recorder.ask(fabric, "services.delete", "DELETE /v1/services/{name}", space, name="ask")


async def _fabric(recorder: Recorder, fabric: Fabric) -> None:
    group = {
        "name": "friends",
        "scope": "group",
        "group": "friends",
        "namespaces": ["team-a", "team-b"],
        "labels": {"team": "friends"},
        "salt": "salt",
        "ttl_s": 3600.5,
    }
    await recorder.ask(fabric, "policies.put", "PUT /v1/policies", body=[group])
    await recorder.ask(fabric, "policies.list", "GET /v1/policies")
    await recorder.ask(fabric, "policies.none", "PUT /v1/policies", "only=1", body=[])
    quota = Quota(name="friends", namespaces=("team-a",), plans_per_minute=1)
    quotas = fabric.control.services.quotas
    await quotas.replace_all([quota], {})
    await recorder.ask(fabric, "quota", "GET /v1/quota", "namespace=team-a")
    await quotas.replace_all([], {})
    await recorder.ask(fabric, "quota.none", "GET /v1/quota", "namespace=team-a")
    await recorder.ask(fabric, "engines.list", "GET /v1/engines")
    await recorder.ask(fabric, "health", "GET /healthz", token="")


async def _uploads(recorder: Recorder, fabric: Fabric) -> None:
    rows = b"\n".join(json.dumps(row).encode() for row in NUMBERS)
    stored = await recorder.ask(
        fabric, "datasets.put", "POST /v1/datasets", "namespace=team-a&name=n.jsonl",
        data=rows, status=201,
    )  # fmt: skip
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in ("config.json", "tokenizer.json"):
            entry = tarfile.TarInfo(name)
            entry.size = 3
            tar.addfile(entry, io.BytesIO(b"{ }"))
    await recorder.ask(
        fabric, "trees.put", "POST /v1/trees", "namespace=team-a&kind=model",
        data=archive.getvalue(), status=201,
    )  # fmt: skip
    reference = f"reference={stored['reference']}&namespace=team-a"
    await recorder.ask(fabric, "content.dataset", "GET /v1/content", reference)


async def _runs(recorder: Recorder, fabric: Fabric) -> str:
    document = {"document": workflow("double", _double())}
    await recorder.ask(fabric, "plan.new", "POST /v1/plan", body=document)
    accepted = await recorder.ask(fabric, "runs.submit", "POST /v1/runs", body=document, status=201)
    uid = str(accepted["uid"])
    await recorder.ask(fabric, "runs.watch", "GET /v1/runs/{uid}/watch", uid=uid)
    await recorder.ask(fabric, "plan.published", "POST /v1/plan", body=document)
    again = await fabric.submit(workflow("again", _double()))
    await fabric.ended(again)
    failed = await fabric.submit(workflow("failing", _FAILING))
    await fabric.ended(failed)
    for case, one in (("ended", uid), ("of-hits", again), ("failed", failed)):
        await recorder.ask(fabric, f"runs.status.{case}", "GET /v1/runs/{uid}", uid=one)
        receipt = "GET /v1/runs/{uid}/receipt"
        await recorder.ask(fabric, f"runs.receipt.{case}", receipt, uid=one)
        await recorder.ask(fabric, f"runs.outputs.{case}", "GET /v1/runs/{uid}/outputs", uid=one)
    why, explain = "GET /v1/runs/{uid}/why", "GET /v1/runs/{uid}/explain"
    await recorder.ask(fabric, "runs.why.executed", why, "step=map", uid=uid)
    await recorder.ask(fabric, "runs.why.hit", why, "step=sum", uid=again)
    await recorder.ask(fabric, "runs.why.failed", why, "step=bad", uid=failed)
    await recorder.ask(fabric, "runs.explain.ended", explain, "step=double", uid=uid)
    await recorder.ask(fabric, "runs.logs.ended", "GET /v1/runs/{uid}/logs", uid=uid)
    for name in ("mapped", "total", "count"):
        await recorder.ask(
            fabric, f"runs.output.{name}", "GET /v1/runs/{uid}/outputs/{name}", uid=uid, name=name
        )
    await recorder.ask(fabric, "runs.trace", "GET /v1/runs/{uid}/trace", uid=uid)
    await recorder.ask(fabric, "runs.verify", "GET /v1/runs/{uid}/verify", "output=mapped", uid=uid)
    await recorder.ask(fabric, "runs.openlineage", "GET /v1/runs/{uid}/openlineage", uid=uid)
    return uid


async def _lineage(recorder: Recorder, fabric: Fabric, uid: str) -> None:
    made = await recorder.ask(fabric, "runs.made", "GET /v1/runs/{uid}/made", uid=uid)
    mapped = next(m["digest"] for m in made if (m["step"], m["port"]) == ("map", "rows"))
    doubled = next(m["digest"] for m in made if m["step"] == "double")
    route = "GET /v1/lineage/{name}"
    await recorder.ask(fabric, "lineage.up", route, name=mapped)
    await recorder.ask(fabric, "lineage.down", route, "direction=down", name=doubled)
    await recorder.ask(fabric, "lineage.cut", route, "depth=1", name=mapped)
    await recorder.ask(fabric, "lineage.rows", "GET /v1/lineage/{name}/rows", name=mapped)
    of_run = "GET /v1/runs/{uid}/lineage"
    await recorder.ask(fabric, "runs.lineage", of_run, "name=mapped", uid=uid)
    rows = "GET /v1/runs/{uid}/lineage/rows"
    await recorder.ask(fabric, "runs.lineage.rows", rows, "name=mapped", uid=uid)


async def _audits(recorder: Recorder, fabric: Fabric) -> None:
    drifting = await fabric.submit(workflow("drifting", _DRIFTING))
    await fabric.ended(drifting)
    begin = "POST /v1/runs/{uid}/audit"
    body = {"share": 1.0, "seed": 3}
    begun = await recorder.ask(fabric, "audits.begin", begin, body=body, uid=drifting, status=201)
    await recorder.ask(fabric, "audits.report.live", "GET /v1/audits/{uid}", uid=begun["uid"])
    await fabric.ended(begun["uid"])
    await recorder.ask(fabric, "audits.report.ended", "GET /v1/audits/{uid}", uid=begun["uid"])
    nothing = {
        "steps": [_step("out", "test.fail", kind="bad-input", message="nothing is made")],
        "outputs": {},
    }
    empty = await fabric.submit(workflow("nothing", nothing))
    await fabric.ended(empty)
    await recorder.ask(fabric, "audits.begin.nothing", begin, body=body, uid=empty)
    await recorder.ask(fabric, "audits.list", "GET /v1/audits")
    found = await recorder.ask(fabric, "quarantine.list", "GET /v1/quarantine")
    name = found[0]["signature_class"]
    await recorder.ask(fabric, "quarantine.release", "DELETE /v1/quarantine/{name}", name=name)


_REQUEST = {
    "custom_id": "a",
    "method": "POST",
    "url": "/v1/chat/completions",
    "body": {
        "model": "smollm2-135m-instruct",
        "messages": [{"role": "user", "content": "hi"}],
    },
}


async def _openai(recorder: Recorder, fabric: Fabric) -> None:
    """Uploads a file, and creates and cancels its batch."""
    form = FormData({"purpose": "batch"})
    form.add_field("file", json.dumps(_REQUEST).encode(), filename="in.jsonl")
    stored = await recorder.ask(fabric, "openai.files.put", "POST /openai/v1/files", data=form)
    name = stored["id"]
    await recorder.ask(fabric, "openai.files.list", "GET /openai/v1/files")
    await recorder.ask(fabric, "openai.files.show", "GET /openai/v1/files/{id}", id=name)
    content = "GET /openai/v1/files/{id}/content"
    await recorder.ask(fabric, "openai.files.content", content, id=name)
    body = {"input_file_id": name, "endpoint": _REQUEST["url"], "completion_window": "1h"}
    create = "POST /openai/v1/batches"
    batch = (await recorder.ask(fabric, "openai.batches.create", create, body=body))["id"]
    planned = {"input_file_id": name, "endpoint": _REQUEST["url"]}
    plan = "POST /openai/v1/batches/plan"
    await recorder.ask(fabric, "openai.batches.plan", plan, body=planned)
    cancel = "POST /openai/v1/batches/{id}/cancel"
    await recorder.ask(fabric, "openai.batches.cancel", cancel, id=batch)
    await recorder.ask(fabric, "openai.batches.list", "GET /openai/v1/batches")
    await recorder.ask(fabric, "openai.batches.show", "GET /openai/v1/batches/{id}", id=batch)
    await recorder.ask(fabric, "openai.models.list", "GET /openai/v1/models")
    model = "smollm2-135m-instruct"
    await recorder.ask(fabric, "openai.models.show", "GET /openai/v1/models/{id}", id=model)
    await recorder.ask(fabric, "openai.files.delete", "DELETE /openai/v1/files/{id}", id=name)


async def _live(recorder: Recorder, fabric: Fabric) -> None:
    machine = machine_of(fabric.control)
    waiting = await fabric.submit(workflow("waiting", _WAITING))
    spec = {**_sleeping(300, "long"), "budgetUsd": "5", "deadline": "2h", "priority": 3}
    running = await fabric.submit(workflow("running", spec))
    joined = await fabric.submit(workflow("joined", {**_sleeping(300, "long")}))
    await until(lambda: machine.state.runs[joined].steps["sleep"].begun)

    def phases() -> set[str]:
        return {a.phase for a in machine.state.attempts.values()}

    await until(lambda: phases() == {"running"})
    await until(lambda: machine.state.rejections)
    why, explain = "GET /v1/runs/{uid}/why", "GET /v1/runs/{uid}/explain"
    await recorder.ask(fabric, "runs.why.waiting", why, "step=big", uid=waiting)
    await recorder.ask(fabric, "runs.why.blocked", why, "step=then", uid=waiting)
    await recorder.ask(fabric, "runs.why.running", why, "step=sleep", uid=running)
    await recorder.ask(fabric, "runs.explain.waiting", explain, "step=big", uid=waiting)
    await recorder.ask(fabric, "runs.explain.running", explain, "step=sleep", uid=running)
    await recorder.ask(fabric, "runs.status.running", "GET /v1/runs/{uid}", uid=running)
    await recorder.ask(fabric, "runs.status.waiting", "GET /v1/runs/{uid}", uid=waiting)
    await recorder.ask(fabric, "workers.list", "GET /v1/workers")
    await recorder.ask(fabric, "fabric.status", "GET /v1/fabric")
    again = {"document": workflow("running", spec)}
    await recorder.ask(fabric, "runs.submit.resumed", "POST /v1/runs", body=again)
    body = {"priority": 7, "budgetUsd": "2.5", "deadline": "3h", "suspend": True}
    await recorder.ask(fabric, "runs.amend", "POST /v1/runs/{uid}/amend", body=body, uid=waiting)
    cancel = "POST /v1/runs/{uid}/cancel"
    await recorder.ask(fabric, "runs.cancel", cancel, body={"reason": "not needed"}, uid=running)
    for uid in (joined, waiting):
        await fabric.call("POST", f"/v1/runs/{uid}/cancel")
        await fabric.ended(uid)
    # A run that joins another's action while it runs, and both end.
    first = await fabric.submit(workflow("first", _sleeping(1.5, "short")))
    await until(lambda: machine.state.runs[first].steps["sleep"].begun)
    second = await fabric.submit(workflow("second", _sleeping(1.5, "short")))
    await fabric.ended(second)
    await recorder.ask(fabric, "runs.why.joined", why, "step=sleep", uid=second)
    await recorder.ask(fabric, "runs.list", "GET /v1/runs")
    await recorder.ask(fabric, "receipts.list", "GET /v1/receipts")
    await recorder.ask(fabric, "charges.list", "GET /v1/charges")
    await recorder.ask(fabric, "runs.delete", "DELETE /v1/runs/{uid}", uid=second)


async def _errors(recorder: Recorder, fabric: Fabric, uid: str) -> None:
    async def refused(case: str, route: str, query: str = "", **more: Any) -> None:
        await recorder.ask(fabric, f"error.{case}", route, query, **more)

    submit, status = "POST /v1/runs", "GET /v1/runs/{uid}"
    wrong = workflow("Wrong", {"steps": [_step("a", "test.nope"), {"name": "b"}]})
    await refused("400.body", submit, data=b"[", status=400)
    await refused("400.query", "GET /v1/lineage/{name}", "depth=0", name="ab" * 32, status=400)
    await refused("401", status, uid=uid, token="wrong", status=401)
    poor = {"document": workflow("poor", {**_sleeping(1, "poor"), "budgetUsd": "0.000000001"})}
    await refused("402", submit, "check=1", body=poor, status=402)
    forged = f"reference=cas:dataset:{'ab' * 32}.{'cd' * 16}&namespace=team-a"
    await refused("403.reference", "GET /v1/content", forged, status=403)
    await refused("404.run", status, uid="unknown", status=404)
    await refused("404.path", "GET /v1/nothing", status=404)
    await refused("405", "DELETE /v1/runs", status=405)
    await refused("409", "POST /v1/runs/{uid}/cancel", uid=uid, status=409)
    await refused("422", submit, body={"document": wrong}, status=422)
    services = fabric.control.services
    plan = {"document": workflow("plan", _sleeping(1, "plan")), "namespace": "team-a"}
    await services.quotas.replace_all(
        [Quota(name="q", namespaces=("team-a",), request_burst=1, requests_per_second=0.1)], {}
    )
    services.rates.take(RequestRate.REQUESTS, "owner", "team-a")
    await refused("429", "POST /v1/plan", body=plan, status=429)
    await services.quotas.replace_all([], {})
    records = services.store.records
    write = type(records).write

    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("the store does not answer", where="policies/x")

    type(records).write = away  # type: ignore[method-assign]
    try:
        body = [{"name": "x"}]
        await refused("503.store", "PUT /v1/policies", body=body, status=503)
    finally:
        type(records).write = write  # type: ignore[method-assign]
    policies = fabric.control.services.policies
    standing = policies.all

    def broken() -> Any:
        raise ZeroDivisionError("division by zero")

    policies.all = broken  # type: ignore[method-assign]
    try:
        await refused("500.fault", "GET /v1/policies", status=500)
    finally:
        policies.all = standing  # type: ignore[method-assign]


async def _cache(recorder: Recorder, fabric: Fabric) -> None:
    await recorder.ask(fabric, "cache.stats", "GET /v1/cache/stats")
    await recorder.ask(fabric, "cache.gc.dry", "POST /v1/cache/gc", "dry_run=1")
    await recorder.ask(fabric, "cache.gc", "POST /v1/cache/gc")
    await _withheld(recorder, fabric)
    body = {"scope": "ns-team-a", "engine": "data.sql"}
    await recorder.ask(fabric, "cache.purge", "POST /v1/cache/purge", body=body)
    uploaded = await fabric.call(
        "POST", "/v1/datasets?namespace=team-a", data=b'{"n":1}\n', status=201
    )
    revoked = {"target": uploaded["reference"]}
    query = "namespace=team-a&all_namespaces=1"
    route = "POST /v1/revoke"
    await recorder.ask(fabric, "revoke.dry", route, f"{query}&dry_run=1", body=revoked)
    await recorder.ask(fabric, "revoke", route, query, body=revoked)
    await recorder.ask(fabric, "workers.drain", "POST /v1/workers/{name}/drain", name="local-w1")


async def _withheld(recorder: Recorder, fabric: Fabric) -> None:
    route, body = "POST /v1/withheld", {"results": {"worker": "local-w1"}}
    await recorder.ask(fabric, "withheld.dry", route, body={**body, "dry_run": True})
    await recorder.ask(fabric, "withheld.done", route, body=body)
    await recorder.ask(fabric, "withheld.list", "GET /v1/withheld")
    await recorder.ask(fabric, "withheld.release", "POST /v1/withheld/release", body=body)


async def _repinned(recorder: Recorder, root: Path) -> None:
    noop = {"steps": [_step("a", "test.noop", value=1)], "outputs": {}}
    old, new = control_plane(root), control_plane(root)
    old._catalog, new._catalog = catalog(1), catalog(2)
    async with _serving(root, old) as fabric:
        uid = await fabric.submit(workflow("old", noop))
    async with _serving(root, new) as fabric:
        await recorder.ask(fabric, "runs.status.outdated", "GET /v1/runs/{uid}", uid=uid)
        repin = "POST /v1/runs/{uid}/repin"
        await recorder.ask(fabric, "runs.repin", repin, uid=uid)


async def _resumed(recorder: Recorder, root: Path) -> None:
    noop = {"steps": [_step("a", "test.noop", value=1)], "outputs": {}}
    async with _serving(root) as fabric:
        uid = await fabric.submit(workflow("twice", noop))
    await die(root, CancelRequested(uid), 1, 2)
    async with _serving(root) as fabric:
        await recorder.ask(fabric, "runs.status.stopped", "GET /v1/runs/{uid}", uid=uid)
        await recorder.ask(fabric, "runs.resume", "POST /v1/runs/{uid}/resume", uid=uid)


async def _refused(recorder: Recorder, damaged: Path, doors: Path, reading: Path) -> None:
    """Records the statuses that need another control plane: 403, 408, 410, 413, 500, 503, 507."""
    async with _serving(damaged) as fabric:
        fabric.worker("local-w1")
        rows = {
            "steps": [_step("one", "data.sql", query="select 1 as n")],
            "outputs": {"rows": "one.rows"},
        }
        uid = await fabric.submit(workflow("lost", rows))
        await fabric.ended(uid)
    blobs = [p for p in (damaged / "store" / "cas").rglob("*") if p.is_file()]
    async with _serving(damaged) as fabric:
        for path in blobs:
            path.unlink()
        output = "GET /v1/runs/{uid}/outputs/{name}"
        await recorder.ask(fabric, "error.410", output, uid=uid, name="rows", status=410)
    control = control_plane(damaged)
    records = control._store.records
    final = await records.read(final_key(uid))
    assert final is not None
    await records.write(final_key(uid), b'{"epoch": 1', if_match=final.etag)
    async with _serving(damaged, control) as fabric:
        await recorder.ask(fabric, "error.500.damaged", "GET /v1/runs/{uid}", uid=uid, status=500)
    users = TableOfUsers({"ada": {"team-a": EDIT}, "bob": {"team-a": VIEW}})
    async with _serving(doors, control_plane(doors, users=users)) as fabric:
        body = {"document": workflow("theirs", _sleeping(1, "x"))}
        await recorder.ask(
            fabric, "error.403.user", "POST /v1/runs", body=body, token="bob-token", status=403
        )
        large = b"," * (COMMAS_MAX + 1)
        await recorder.ask(
            fabric, "error.413", "POST /v1/plan", data=large, token="ada-token", status=413
        )
        users.answers = False
        await recorder.ask(fabric, "error.503.users", "GET /v1/runs", token="ada-token", status=503)
    await _paused(recorder, doors)
    for case, refusal, status in (
        ("507", StoreFullError("no space is left", where="store", remedy="free some"), 507),
        ("500.access", StoreAccessError("the store is read-only", where="store"), 500),
    ):
        control = control_plane(damaged)
        await control.start_reading(refusal)
        async with _client(reading, control) as fabric:
            body = {"document": workflow("new", _sleeping(1, "new"))}
            await recorder.ask(fabric, f"error.{case}", "POST /v1/runs", body=body, status=status)


async def _paused(recorder: Recorder, root: Path) -> None:
    """A request body that stops without an end."""
    usual = connections.ConnectionTimes

    def quick() -> connections.ConnectionTimes:
        return usual(body_pause_s=0.3)

    connections.ConnectionTimes = quick  # type: ignore[assignment,misc]
    try:
        control = control_plane(root)
        async with _serving(root, control) as fabric:

            async def body() -> AsyncIterator[bytes]:
                yield b"["
                await asyncio.Event().wait()

            await recorder.ask(fabric, "error.408", "POST /v1/plan", data=body(), status=408)
    finally:
        connections.ConnectionTimes = usual  # type: ignore[misc]


def _check_no_paths(recorder: Recorder) -> None:
    """Refuses to write paths of this machine."""
    host = re.escape(socket.gethostname().encode())
    found = re.compile(rb"/(tmp|home|root|work|var|Users)/|" + host)
    naming = {case for case, body in recorder.bodies.items() if found.search(body)}
    assert not naming, naming


def main(arguments: list[str]) -> int:
    if arguments != ["--write"]:
        sys.stderr.write("usage: python -m tests.golden.api_recorder --write\n")
        return 2
    recorder = asyncio.run(record())
    _check_no_paths(recorder)
    recorder.write()
    FILLED.write_text(json.dumps(filled_texts(types()), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
