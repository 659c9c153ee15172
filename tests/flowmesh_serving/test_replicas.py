"""The router's table of replicas."""

from collections import Counter
from unittest.mock import Mock

from flowmesh_core.protocol.serving import ReplicaLoad
from flowmesh_serving.calls.replicas import ReplicaTable

CHAT = "/v1/chat/completions"


def test_single_calls_are_spread_over_idle_replicas() -> None:
    table = ReplicaTable(lambda *_: True)
    loads = tuple(ReplicaLoad(name, "ns/model", (CHAT,), 4) for name in ("one", "two"))
    table.update(Mock(worker="w"), loads)
    chosen: Counter[str] = Counter()
    for n in range(200):
        replica = table.choose("ns/model", CHAT, (), f"call-{n}")
        assert replica is not None
        chosen[replica.candidate.replica_id] += 1
    assert min(chosen["one"], chosen["two"]) > 60
