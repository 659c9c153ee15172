"""Downloads of a simulated worker: how long one takes, and how several divide the network."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_core.costmodel.devices import FETCH_CONNECTIONS, FETCH_PIECE_BYTES
from flowmesh_sim.kernel.constants import read_constants
from flowmesh_sim.kernel.environment import Environment
from flowmesh_sim.models.download_rates import DownloadRates, download_rates, fastest_downloads
from flowmesh_sim.workers.downlink import Downlink

MB = 1_000_000
PIECE = FETCH_PIECE_BYTES
LARGE = 1000 * PIECE
RATES = DownloadRates(connection_bytes_per_s=float(PIECE), network_bytes_per_s=20.0 * PIECE)
"""A connection reads a piece a second, and all of them eight; the machine could do twenty."""
NARROW = DownloadRates(connection_bytes_per_s=float(PIECE), network_bytes_per_s=2.0 * PIECE)
WEIGHTS_8B = 2 * 8_030_261_248


def ends(rates: DownloadRates, *downloads: tuple[float, int]) -> list[float]:
    """Simulates downloads by start and size; returns when each has ended."""
    engine = Environment()
    link = Downlink(engine, rates)
    found = [0.0] * len(downloads)

    def ended(number: int) -> None:
        found[number] = engine.now_s

    for number, (start_s, size) in enumerate(downloads):
        engine.at(start_s, link.start, size, lambda n=number: ended(n))
    engine.run(until_s=1e9, over=lambda: False)
    return found


def test_a_small_blob_is_read_by_one_connection() -> None:
    assert RATES.seconds(0) == 0.0
    assert RATES.seconds(PIECE // 2) == 0.5
    assert RATES.seconds(PIECE) == 1.0


def test_a_large_blob_is_read_by_eight_connections_after_its_first_piece() -> None:
    assert FETCH_CONNECTIONS == 8
    assert RATES.seconds(9 * PIECE) == 2.0
    assert RATES.seconds(LARGE) == 1.0 + 999 / 8


def test_the_machines_network_limits_the_connections_together() -> None:
    assert NARROW.seconds(PIECE) == 1.0
    assert NARROW.seconds(LARGE) == 1.0 + 999 / 2
    slow = DownloadRates(connection_bytes_per_s=float(PIECE), network_bytes_per_s=PIECE / 4)
    assert slow.seconds(PIECE) == 4.0
    assert slow.seconds(LARGE) == 4000.0


def test_a_download_alone_takes_what_its_size_takes() -> None:
    assert ends(RATES, (5.0, LARGE)) == pytest.approx([5.0 + RATES.seconds(LARGE)])
    assert ends(RATES, (5.0, 1)) == pytest.approx([5.0 + RATES.seconds(1)])


def test_two_large_downloads_take_twice_as_long_each() -> None:
    both_s = 2 * RATES.seconds(LARGE)
    assert ends(RATES, (0.0, LARGE), (0.0, LARGE)) == pytest.approx([both_s, both_s], rel=0.01)


def test_a_download_has_the_whole_network_again_when_the_other_one_has_ended() -> None:
    # Alone for 50 s, beside the other one at half the rate until that ends, and alone again.
    alone_s = RATES.seconds(LARGE)
    first, second = ends(RATES, (0.0, LARGE), (50.0, LARGE))
    assert first == pytest.approx(50.0 + 2 * (alone_s - 50.0), rel=0.01)
    assert second == pytest.approx(2 * alone_s, rel=0.01)


def test_small_downloads_do_not_slow_each_other_while_there_are_connections() -> None:
    assert ends(RATES, *[(0.0, PIECE)] * 8) == pytest.approx([1.0] * 8)
    assert ends(RATES, *[(0.0, PIECE)] * 16) == pytest.approx([2.0] * 16)
    assert ends(NARROW, *[(0.0, PIECE)] * 8) == pytest.approx([4.0] * 8)


@given(
    st.sampled_from([RATES, NARROW]),
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 3 * PIECE) | st.integers(PIECE, LARGE)),
        min_size=1,
        max_size=8,
    ),
)
def test_no_download_is_quicker_than_alone_and_together_none_exceeds_the_network(
    rates: DownloadRates, given_: list[tuple[int, int]]
) -> None:
    downloads = [(float(start_s), size) for start_s, size in given_]
    found = ends(rates, *downloads)
    for (start_s, size), end_s in zip(downloads, found, strict=True):
        assert end_s - start_s >= rates.seconds(size) - 1e-5
    most = min(8 * rates.connection_bytes_per_s, rates.network_bytes_per_s)
    first_s, last_s = min(s for s, _ in downloads), max(found)
    assert sum(size for _, size in downloads) <= most * (last_s - first_s) + 1e-3 * PIECE


def test_what_has_come_is_known_at_any_moment_and_exact_at_the_end() -> None:
    engine, seen = Environment(), list[float]()
    link = Downlink(engine, NARROW)

    def look() -> None:
        seen.append(link.received_bytes())

    engine.at(0.0, link.start, LARGE, look)
    engine.at(10.0, link.start, LARGE, look)
    for at_s in (0.0, 5.0, 10.0, 20.0):
        engine.at(at_s, look)
    engine.run(until_s=1e9, over=lambda: False)
    a_second = 2 * PIECE
    assert seen[:4] == pytest.approx([0.0, 5 * a_second, 10 * a_second, 20 * a_second], rel=0.01)
    assert round(seen[-1]) == round(link.received_bytes()) == 2 * LARGE
    assert LARGE < seen[-2] < 2 * LARGE, "the second one is under way when the first has ended"


def test_more_bytes_never_take_less_time() -> None:
    sizes = [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 9 * PIECE, LARGE]
    for rates in (RATES, NARROW):
        seconds = [rates.seconds(size) for size in sizes]
        assert seconds == sorted(seconds)


def test_a_data_centre_and_a_lease_have_networks_of_their_own() -> None:
    facts = read_constants()
    in_pods, leased = (download_rates(facts, start) for start in ("pod", "lease"))
    assert download_rates(facts, "pull") == in_pods
    # Eight connections of 87.5 MB/s are less than 10 Gbit/s; a lease has 134 MB/s.
    assert WEIGHTS_8B / in_pods.seconds(WEIGHTS_8B) == pytest.approx(700 * MB, rel=0.01)
    assert WEIGHTS_8B / leased.seconds(WEIGHTS_8B) == pytest.approx(134 * MB, rel=0.01)
    assert fastest_downloads(facts) == in_pods
