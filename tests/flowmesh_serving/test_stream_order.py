"""A client gets the pieces of one stream in their order, once, whatever is lost or routed again."""

import random

import msgspec
import pytest
from tests.flowmesh_serving.lossy_streams import StreamNetwork

FRESH = pytest.param(random.randrange(1 << 30), id="fresh")


def checked(network: StreamNetwork, requests: int) -> None:
    """Fails unless each client got its stream in order, and whole where it was answered."""
    network.run(requests)
    assert network.disordered() == []
    outcomes = network.outcomes()
    assert outcomes.total() == requests
    assert outcomes.keys() <= {"ok", "lost", "deadline"}
    assert outcomes["lost"] > 0, "none had begun to stream as its worker was lost"
    assert outcomes["ok"] > 0.7 * requests
    assert not network.router._pending


@pytest.mark.parametrize("seed", [1, FRESH])
@pytest.mark.parametrize(
    "requests",
    [
        pytest.param(10_000, marks=pytest.mark.slow),
        pytest.param(100_000, marks=pytest.mark.nightly),
    ],
)
def test_streams_keep_their_order_with_lost_workers_and_new_routes(
    seed: int, requests: int
) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    checked(StreamNetwork(seed), requests)


def test_pieces_that_do_not_name_their_route_give_a_client_two_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    piece = StreamNetwork.piece
    monkeypatch.setattr(
        StreamNetwork,
        "piece",
        lambda *given: msgspec.structs.replace(piece(*given), version=0),
    )
    network = StreamNetwork(1)
    network.run(2_000)
    assert network.disordered()
