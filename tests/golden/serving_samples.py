"""One frame of each kind between routers, hubs, engine hosts and the agent, every field filled."""

from typing import Any

from flowmesh_core.protocol import serving
from flowmesh_worker.ipc import hub_frames

_LOAD = serving.ReplicaLoad(
    replica_id="team-a/ask/llm/r1/0",
    service="team-a/ask",
    paths=("/v1/completions",),
    calls_max=2,
    running=1,
    queued=3,
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
)
TO_ROUTER: dict[str, Any] = {
    "hub hello": serving.HubHello(
        version=1, worker="w-1", incarnation="0a", replicas=(_LOAD,), certificate="00.YQ==.Yg=="
    ),
    "link renewed": serving.LinkRenewed(certificate="00.YQ==.Yg=="),
    "loads": serving.ReplicaLoads(replicas=(_LOAD,)),
    "piece": serving.Piece(call_id="c1", data=b"data: {}\n\n"),
    "call ended": serving.CallEnded(
        call_id="c1", outcome="failed", status=400, body=b"{}", tokens_in=7, tokens_out=8
    ),
    "call refused": serving.CallRefused(call_id="c1", reason="full"),
    "pong": serving.Pong(),
}
FROM_ROUTER: dict[str, Any] = {
    "welcome": serving.RouterWelcome(version=1),
    "refused": serving.RouterRefused(reason="version 2"),
    "call": _CALL,
    "credit": serving.Credit(call_id="c1", size=100),
    "abort": serving.Abort(call_id="c1"),
    "ping": serving.Ping(),
}
FROM_CALL_HOST: dict[str, Any] = {
    "host hello": serving.CallHostHello(paths=("/v1/completions",), calls_max=64),
}
TO_HUB: dict[str, Any] = {
    "routers": hub_frames.UseRouters(
        addresses=("tls:routers:8481",),
        tls={"tls:routers:8481": hub_frames.RouterTls(ca="PEM", certificate="00.YQ==.Yg==")},
    ),
    "admit": hub_frames.AdmitReplica(
        replica_id="team-a/ask/llm/r1/0",
        service="team-a/ask",
        socket="/run/calls.sock",
        calls_max=9,
        salts={"team-a": "salt"},
        halvings=1,
    ),
    "withdraw": hub_frames.WithdrawReplica(replica_id="team-a/ask/llm/r1/0"),
    "close hub": hub_frames.CloseHub(),
}
FROM_HUB: dict[str, Any] = {
    "hub started": hub_frames.HubStarted(),
    "usage": hub_frames.ReplicaUsage(replica_id="team-a/ask/llm/r1/0", calls=1, tokens=10),
}
