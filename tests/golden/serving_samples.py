"""One frame of each kind between routers, hubs, engine hosts and the agent, every field filled."""

from typing import Any

from flowmesh_core.protocol import serving
from flowmesh_core.stages.route import RequestRoute, StageRoute
from flowmesh_core.stages.service_graph import ServiceGraph, Stage
from flowmesh_core.stages.stage_timing import StageTiming
from flowmesh_worker.ipc import hub_frames

_LOAD = serving.ReplicaLoad(
    replica_id="team-a/ask/llm/r1/0",
    service="team-a/ask",
    paths=("/v1/completions",),
    calls_max=2,
    running=1,
    queued=3,
    component="llm",
    sizes=(1, 2),
    seconds=(0.5, 0.75),
    cap=4,
    adapters=("german",),
    call_lengths=(0.5, 1.5),
)
GRAPH = ServiceGraph(
    stages=(
        Stage(
            name="best",
            component="rerank",
            path="/components/rerank",
            inputs={"found": "hits.rows"},
            params={"k": 8},
            stream=True,
            affinity="docs",
        ),
    ),
    reply={"text": "best.text"},
)
_ROUTE = RequestRoute(
    version=2,
    stages=(
        StageRoute(
            stage="best",
            component="rerank",
            replica_id="team-a/ask/rerank/r1/0",
            worker="w-1",
            arity=2,
        ),
    ),
)
_CALL = serving.ServiceCall(
    call_id="c1",
    replica_id="team-a/ask/llm/r1/0",
    path="/v1/chat/completions",
    model="ask",
    body=b'{"n":1}',
    stream=True,
    budget_ms=4500,
    tenant="team-b",
    seed=5,
    cache_salt="salt",
    priority=6,
    tool_parser="hermes",
    adapter="german",
)
TO_ROUTER: dict[str, Any] = {
    "hub hello": serving.HubHello(
        version=1,
        worker="w-1",
        incarnation="0a",
        replicas=(_LOAD,),
        peer="0a",
        reports_stages=True,
    ),
    "link renewed": serving.LinkRenewed(certificate="PEM"),
    "loads": serving.ReplicaLoads(
        replicas=(_LOAD,),
        passed_bytes={"relay": 9},
        dropped_values={"stale": 1},
        times={"team-a/ask/llm/r1/0": serving.CallTimes(3, 0.5, 0.25, 2, 5)},
    ),
    "piece": serving.Piece(call_id="c1", data=b"data: {}\n\n", version=2),
    "call ended": serving.CallEnded(
        call_id="c1",
        outcome="failed",
        status=400,
        body=b"{}",
        tokens_in=7,
        tokens_out=8,
        value=serving.PassedValue(data=b"[1]", number=3, path=()),
        step=2,
        times=((0.25, 0.5),),
    ),
    "call refused": serving.CallRefused(call_id="c1", reason="full"),
    "pong": serving.Pong(),
    "stage failed": serving.StageFailed(
        request_id="q1",
        version=2,
        stage="best",
        replica_id="team-a/ask/rerank/r1/0",
        outcome="failed",
        status=400,
        body=b"{}",
    ),
    "stage report": serving.StageReport(
        number=3,
        stages=(
            serving.StageProgress(
                stage="best", state="ended", age_s=0.75, queue_s=0.25, compute_s=0.5
            ),
        ),
    ),
}
FROM_ROUTER: dict[str, Any] = {
    "welcome": serving.RouterWelcome(version=1),
    "refused": serving.RouterRefused(reason="version 2"),
    "call": _CALL,
    "credit": serving.Credit(call_id="c1", size=100),
    "abort": serving.Abort(call_id="c1"),
    "ping": serving.Ping(),
    "graph": serving.UseGraph(graph=GRAPH),
    "run stages": serving.RunStages(
        request_id="q1",
        graph="0a",
        route=_ROUTE,
        request=b'{"question":"?"}',
        budget_ms=4500,
        slo_ms=2000,
        tenant="team-b",
        seed=5,
        stream=True,
        peers={"w-2": serving.PeerAddress(socket="0b", key="0c")},
        timed=True,
    ),
    "stage value": serving.StageValue(
        request_id="q1", version=2, stage="best", source="hits", data=b"[1]"
    ),
    "end request": serving.EndRequest(request_id="q1"),
    "ask stages": serving.AskStages(number=3, request_id="q1"),
}
TO_CALL_HOST: dict[str, Any] = {
    "component call": serving.ComponentCall(
        call_id="q1.2.best",
        component="rerank",
        body=b'{"k":8}',
        stored={"found": serving.StoredInput(key="q1.2.hits", path=("rows",))},
        store_as="q1.2.best",
        wants_body=True,
        budget_ms=4500,
        slo_ms=2000,
        tenant="team-b",
        passed={"query": serving.PassedValue(data=b"[1]", number=3, path=("rows",))},
        wants_value=True,
        then=(
            serving.ComponentCall(
                call_id="q1.2.last",
                component="rerank",
                body=b"{}",
                stored={"best": serving.StoredInput(key="q1.2.best")},
                store_as="",
                wants_body=True,
                budget_ms=4500,
                slo_ms=2000,
            ),
        ),
        timing=StageTiming(target_s=0.5, visits=2, rest_s=0.25),
        timed=True,
    ),
    "forget values": serving.ForgetValues(keys=("q1.2.hits",)),
    "token targets": serving.TokenTargets(ttft_s=1.5, tpot_s=0.05),
}
FROM_CALL_HOST: dict[str, Any] = {
    "host hello": serving.CallHostHello(
        paths=("/v1/completions",), calls_max=64, adapters=("german",)
    ),
    "calls within targets": serving.CallsWithinTargets(calls=12),
    "component profiles": serving.ComponentProfiles(
        profiles=(
            serving.ComponentProfile(
                component="rerank",
                queued=3,
                cap=4,
                sizes=(1, 2),
                seconds=(0.5, 0.75),
                times=serving.CallTimes(3, 0.5, 0.25, 2, 3),
                call_lengths=(0.5, 1.5),
            ),
        )
    ),
}
TO_PEER: dict[str, Any] = {
    "peer hello": serving.PeerHello(version=1, worker="w-1", key="0c"),
    "peer value": serving.PeerValue(
        request_id="q1",
        version=2,
        stage="best",
        source="hits",
        value=serving.PassedValue(data=b"[1]", number=3, path=("rows",)),
        checksum=4,
    ),
}
FROM_PEER: dict[str, Any] = {
    "peer welcome": serving.PeerWelcome(),
    "peer refused": serving.PeerRefused(request_id="q1", version=2),
}
TO_HUB: dict[str, Any] = {
    "routers": hub_frames.UseRouters(
        addresses=("tls:routers:8481",),
        tls={
            "tls:routers:8481": hub_frames.RouterTls(
                ca="PEM", certificate="PEM 2", key="PEM 3", authorities="PEM 4", group="g1"
            )
        },
        peer_port=8483,
    ),
    "admit": hub_frames.AdmitReplica(
        replica_id="team-a/ask/llm/r1/0",
        service="team-a/ask",
        socket="/run/calls.sock",
        calls_max=9,
        salts={"team-a": "salt"},
        halvings=1,
        component="llm",
        timings={"answer": StageTiming(target_s=0.5, visits=2, rest_s=0.25)},
        ttft_s=1.5,
        tpot_s=0.05,
    ),
    "withdraw": hub_frames.WithdrawReplica(replica_id="team-a/ask/llm/r1/0"),
    "close hub": hub_frames.CloseHub(),
}
FROM_HUB: dict[str, Any] = {
    "hub started": hub_frames.HubStarted(),
    "usage": hub_frames.ReplicaUsage(
        replica_id="team-a/ask/llm/r1/0", calls=1, tokens=10, call_s=12.5
    ),
}
