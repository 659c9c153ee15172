"""Two operators on one API server: election and takeover."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.flowmesh_operator.api_server import ApiServer, until
from tests.flowmesh_operator.replicas import Objects, Replicas, noop, replicas, sleep

pytestmark = pytest.mark.slow


@pytest.fixture
def fabric(api_server: ApiServer, tmp_path: Path) -> Iterator[Replicas]:
    with replicas(api_server, tmp_path) as made:
        yield made


@pytest.fixture
def objects(fabric: Replicas, namespace: str) -> Objects:
    return Objects(fabric.server, namespace)


def _pair(fabric: Replicas) -> None:
    """Starts the leader ``a``, the standby ``b`` and the worker ``w``."""
    fabric.operator("a")
    fabric.worker("local-w")
    until(lambda: fabric.leads("a"), "a leads", 60)
    fabric.operator("b")


def test_a_standby_takes_over_from_a_killed_leader_and_detects_deletions_made_meanwhile(
    fabric: Replicas, objects: Objects
) -> None:
    _pair(fabric)
    objects.apply(objects.workflow("kept", sleep("a", 8)), objects.workflow("gone", sleep("a", 60)))
    objects.until("kept", phase="Running", counts=objects.counts(running=1))
    gone = objects.uid("gone")
    until(lambda: objects.condition("gone", "Accepted").get("status") == "True", "gone is accepted")
    fabric.end("b")  # so that nobody sees the deletion
    fabric.end("a", signal.SIGKILL)
    objects.server.kubectl("delete", "fmw", "gone", "-n", objects.namespace)
    fabric.operator("b")
    until(lambda: "leads" in fabric.log("b"), "b leads", 60)
    objects.wait("kept")
    status = objects.status("kept")
    assert (status["epoch"], status["executed"]) == (2, 1)
    until(lambda: fabric.phase(gone) == "Cancelled", "the run without an object is cancelled", 20)


def test_a_killed_leader_is_replaced_when_its_lease_has_expired(
    fabric: Replicas, objects: Objects
) -> None:
    _pair(fabric)
    objects.apply(objects.workflow("first", noop("a")))
    objects.wait("first")
    fabric.end("a", signal.SIGKILL)
    until(lambda: fabric.leads("b"), "b leads", 60)
    objects.apply(objects.workflow("second", noop("a")))
    objects.wait("second")


def test_a_leader_that_is_stopped_gives_its_lease_back(fabric: Replicas) -> None:
    lasting = {"FLOWMESH_LEASE_S": "600", "FLOWMESH_RENEW_DEADLINE_S": "300"}
    fabric.operator("a", **lasting)
    until(lambda: fabric.leads("a"), "a leads", 60)
    fabric.operator("b", **lasting)
    until(lambda: fabric.watches("b"), "b watches", 60)
    assert fabric.end("a") == 0
    until(lambda: fabric.leads("b"), "b leads long before the lease would have run out", 60)


def test_a_leader_frozen_beyond_its_lease_writes_nothing_and_exits(
    fabric: Replicas, objects: Objects
) -> None:
    # A frozen process keeps its port, as a frozen pod keeps its address.
    fabric.operator("a")
    fabric.worker("local-w")
    fabric.worker("local-v", host="127.0.0.2")
    until(lambda: fabric.leads("a"), "a leads", 60)
    fabric.operator("b", FLOWMESH_GATEWAY_HOST="127.0.0.2")
    until(lambda: fabric.watches("b"), "b watches", 60)
    objects.apply(objects.workflow("long", sleep("a", 4)))
    objects.until("long", phase="Running", counts=objects.counts(running=1))
    frozen = fabric.processes["a"]
    frozen.send_signal(signal.SIGSTOP)
    until(lambda: fabric.leads("b"), "b leads", 60)
    objects.until("long", epoch=2)
    frozen.send_signal(signal.SIGCONT)
    assert frozen.wait(300) == 3
    assert "lease was not renewed in time" in fabric.log("a")
    objects.wait("long")
    assert objects.status("long")["epoch"] == 2


def test_an_outage_of_the_api_server_beyond_the_lease_ends_the_leader_and_not_the_work(
    fabric: Replicas, objects: Objects
) -> None:
    _pair(fabric)
    until(lambda: fabric.watches("b"), "b watches", 60)
    objects.apply(objects.workflow("before", sleep("a", 2)))
    objects.until("before", phase="Running", counts=objects.counts(running=1))
    with fabric.server.away():  # it forgets the watches' versions: 410 Gone
        assert fabric.processes.pop("a").wait(300) == 3
    until(lambda: fabric.leads("b"), "b leads", 60)
    objects.apply(objects.workflow("after", noop("a")))
    objects.wait("before")
    objects.wait("after")
    assert objects.status("before")["executed"] == 1
