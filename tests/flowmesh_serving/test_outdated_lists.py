"""A router never goes back to the services of a leader that another one has deposed."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.flowmesh_serving.stack import services

from flowmesh_core.protocol.router_services import RouterServices
from flowmesh_serving.router.server import RouterServer
from flowmesh_serving.router.settings import RouterSettings

OLDER, NEWER = 3, 4
_COUNT = "flowmesh_service_outdated_lists_total"


def router() -> RouterServer:
    """Returns a router that has read nothing yet."""
    nowhere = Path("/nonexistent")
    return RouterServer(
        RouterSettings("127.0.0.1", 0, nowhere, control="http://127.0.0.1:1", token=nowhere)
    )


def listed(epoch: int, version: int) -> RouterServices:
    """Returns a list with one service, whose model says of what it is."""
    entry = services(slo_s=float(version), timeout_s=float(1 + epoch))
    return RouterServices(entry, epoch=epoch, version=version)


def offered(found: RouterServer) -> tuple[int, int]:
    """Returns the epoch and the version of the list by which a router routes."""
    (name,) = found._services.names
    entry = found._services.entry(name)
    assert entry is not None
    return int(entry.timeout_s) - 1, int(entry.slo_s)


def refused(found: RouterServer) -> float:
    return found._metrics.registry.get_sample_value(_COUNT) or 0.0


LISTS = st.tuples(st.sampled_from([OLDER, NEWER]), st.integers(0, 5))


@given(st.lists(LISTS, min_size=1))
def test_any_interleaving_of_two_leaders_leaves_the_newest_list_that_came(
    arrivals: list[tuple[int, int]],
) -> None:
    found, came = router(), list[tuple[int, int]]()
    for epoch, version in arrivals:
        found._use(listed(epoch, version))
        came.append((epoch, version))
        newest_epoch = NEWER if any(e == NEWER for e, _ in came) else OLDER
        assert offered(found) == (newest_epoch, max(v for e, v in came if e == newest_epoch))


@given(st.lists(LISTS), st.lists(LISTS))
def test_a_list_without_an_epoch_is_taken_and_older_ones_stay_refused(
    before: list[tuple[int, int]], after: list[tuple[int, int]]
) -> None:
    """It is of a leader of an older release, which the installation was taken back to."""
    found = router()
    found._use(listed(NEWER, 5))
    for epoch, version in before:
        found._use(listed(epoch, version))
    found._use(listed(0, 1))
    assert offered(found) == (0, 1)
    for epoch, version in after:
        found._use(listed(epoch, version))
    assert offered(found)[0] in (0, NEWER)


def test_refused_lists_are_counted_and_one_line_of_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = router()
    found._use(listed(NEWER, 1))
    with caplog.at_level(logging.WARNING):
        for version in (7, 8, 9):
            found._use(listed(OLDER, version))
    assert refused(found) == 3
    assert [r.getMessage() for r in caplog.records] == [
        "refused an outdated list of services, of epoch 3: the newest is of epoch 4; "
        "where the store was replaced, restart the router"
    ]


def test_workers_that_a_newer_leader_denies_stay_denied() -> None:
    found = router()
    found._use(RouterServices(services(), {}, ("worker-1",), NEWER, 1))
    found._use(RouterServices(services(), {}, (), OLDER, 9))
    assert found._verifier.denies("worker-1")
