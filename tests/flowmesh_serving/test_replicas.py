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
        replica = table.choose("ns/model", CHAT, (), f"call-{n}", "")
        assert replica is not None
        chosen[replica.candidate.replica_id] += 1
    assert min(chosen["one"], chosen["two"]) > 60


def test_places_follow_every_change_of_the_table() -> None:
    table = ReplicaTable(lambda *_: True)
    first, second = Mock(worker="v"), Mock(worker="w")
    assert table.places("ns/model") == 0
    table.update(first, (ReplicaLoad("one", "ns/model", (CHAT,), 4),))
    assert table.places("ns/model") == 4
    table.update(second, (ReplicaLoad("two", "ns/model", (CHAT,), 3),))
    assert table.places("ns/model") == 7
    table.update(first, (ReplicaLoad("one", "ns/model", (CHAT,), 9),))
    assert table.places("ns/model") == 12
    table.drop("ns/model", table.of("ns/model")["two"])
    assert table.places("ns/model") == 9
    table.remove(first)
    assert table.places("ns/model") == 0
