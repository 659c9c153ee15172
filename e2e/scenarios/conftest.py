"""Fixtures: a cluster for the session, FlowMesh installed in it, and namespaces of tenants."""

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e.cluster.places import KUBECONFIG
from e2e.harness import own_cluster
from e2e.harness.fabric import Fabric
from e2e.harness.kube import Kube
from e2e.harness.machine import Machine

_KEEP = "FLOWMESH_E2E_KEEP"
_VALUES = "FLOWMESH_E2E_VALUES"
_numbers = itertools.count(1)
_STUCK_S = 1800
"""The first scenario includes the cluster's start and the installation."""
_FIRST = ("installation", "first_workflow", "growing", "sharing", "user_code", "cli", "faults")
_LAST = ("many", "rights", "uninstallation")
"""Thousands of workflows are long in going."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long, and how much."""
    parser.addoption("--soak-minutes", type=float, default=15.0, help="of test_soak.py")
    parser.addoption("--ended", type=int, default=10_000, help="workflows, of test_many.py")


@pytest.fixture(scope="session")
def soak_s(request: pytest.FixtureRequest) -> float:
    """The length of the soak, in seconds."""
    return 60.0 * float(request.config.getoption("--soak-minutes"))


@pytest.fixture(scope="session")
def ended(request: pytest.FixtureRequest) -> int:
    """How many workflows have ended before a leader starts."""
    return int(request.config.getoption("--ended"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """From what a fresh installation does to its end; rights after all that uses them."""
    items.sort(key=_place)
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_STUCK_S))


def _place(item: pytest.Item) -> int:
    name = item.path.stem.removeprefix("test_")
    if name in _LAST:
        return len(_FIRST) + 1 + _LAST.index(name)
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


@pytest.fixture(scope="session")
def kube() -> Iterator[Kube]:
    """KUBECONFIG's cluster, or one of our own, which ends with the session."""
    named = os.environ.get("KUBECONFIG")
    if named:
        yield Kube(Path(named))
        return
    try:
        yield own_cluster.start()
    finally:
        if not os.environ.get(_KEEP):
            own_cluster.end()


@pytest.fixture(scope="session")
def fabric(kube: Kube) -> Iterator[Fabric]:
    """The chart, installed; FLOWMESH_E2E_VALUES names a file of values for a cluster of yours."""
    values = os.environ.get(_VALUES, str(own_cluster.VALUES))
    installed = Fabric(kube, [Path(file) for file in values.split(os.pathsep)])
    installed.install()
    yield installed
    # Our own cluster ends with everything in it.
    if not os.environ.get(_KEEP) and kube.kubeconfig != KUBECONFIG:
        installed.uninstall()


@pytest.fixture(scope="session")
def machine(kube: Kube) -> Machine:
    """The machine below our own cluster; nobody's else is within reach."""
    if kube.kubeconfig != KUBECONFIG:
        pytest.skip("needs the node: processes, networks and memory of pods")
    return Machine()


@pytest.fixture
def tenant(kube: Kube) -> Iterator[Callable[[], str]]:
    """Makes fresh namespaces; they go after the test."""
    made: list[str] = []

    def make() -> str:
        made.append(f"team-{os.getpid()}-{next(_numbers)}")
        kube.namespace(made[-1])
        return made[-1]

    yield make
    for name in made:
        kube.run("delete", "namespace", name, "--wait=false")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Adds the fabric's state to what a failed scenario shows."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    installed = getattr(item, "funcargs", {}).get("fabric")
    if report.failed and installed is not None:
        report.sections.append(("the fabric", installed.state()))


@pytest.fixture(scope="session")
def told(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Prints a figure, captured or not."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(text: str) -> None:
        with capture.global_and_fixture_disabled():
            sys.stdout.write(f"\n{text}\n")

    return say
