"""Fixtures: a cluster for the session, FlowMesh installed in it, and namespaces of tenants."""

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e.cluster.paths import KUBECONFIG
from e2e.harness import own_cluster
from e2e.harness.fabric import Fabric
from e2e.harness.kube import Kube
from e2e.harness.machine import Machine

_KEEP = "FLOWMESH_E2E_KEEP"
_VALUES = "FLOWMESH_E2E_VALUES"
_numbers = itertools.count(1)
_STUCK_S = 1800
"""The first scenario includes the cluster's start and the installation."""
_FIRST = (
    "installation",
    "first_workflow",
    "services",
    "growing",
    "sharing",
    "user_code",
    "cli",
    "faults",
)
_LAST = ("many", "rights", "uninstallation")
"""Deleting thousands of workflows takes long."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options for the durations and sizes of scenarios."""
    parser.addoption("--soak-minutes", type=float, default=15.0, help="of test_soak.py")
    parser.addoption("--ended", type=int, default=10_000, help="workflows, of test_many.py")


@pytest.fixture(scope="session")
def soak_s(request: pytest.FixtureRequest) -> float:
    """Returns the length of the soak, in seconds."""
    return 60.0 * float(request.config.getoption("--soak-minutes"))


@pytest.fixture(scope="session")
def ended(request: pytest.FixtureRequest) -> int:
    """Returns how many workflows have ended before a leader starts."""
    return int(request.config.getoption("--ended"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Orders the scenarios from a fresh installation to its end; rights after their use."""
    items.sort(key=_place)
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_STUCK_S))


def _place(item: pytest.Item) -> int:
    name = item.path.stem.removeprefix("test_")
    if item.path.parent.name == "attacks":
        return len(_FIRST)
    if name in _LAST:
        return len(_FIRST) + 1 + _LAST.index(name)
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


@pytest.fixture(scope="session")
def kube() -> Iterator[Kube]:
    """Returns KUBECONFIG's cluster, or starts one that ends with the session."""
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
def fabric(kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """Installs the chart; FLOWMESH_E2E_VALUES names a file of values for your own cluster."""
    values = os.environ.get(_VALUES, str(own_cluster.VALUES))
    files = [Path(file) for file in values.split(os.pathsep)]
    installed = Fabric(kube, files, tmp_path_factory.mktemp("chart"))
    installed.install()
    yield installed
    # The e2e cluster ends with everything in it.
    if not os.environ.get(_KEEP) and kube.kubeconfig != KUBECONFIG:
        installed.uninstall()


@pytest.fixture(scope="session")
def machine(kube: Kube) -> Machine:
    """Returns the machine below the e2e cluster; skips the test on other clusters."""
    if kube.kubeconfig != KUBECONFIG:
        pytest.skip("needs the node: processes, networks and memory of pods")
    return Machine()


@pytest.fixture
def tenant(kube: Kube) -> Iterator[Callable[[], str]]:
    """Creates new namespaces; deletes them after the test."""
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
    """Adds the fabric's state to the report of a failed scenario."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    installed = getattr(item, "funcargs", {}).get("fabric")
    if report.failed and installed is not None:
        report.sections.append(("the fabric", installed.state()))


@pytest.fixture(scope="session")
def print_line(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Prints a measurement, even while output is captured."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(text: str) -> None:
        with capture.global_and_fixture_disabled():
            sys.stdout.write(f"\n{text}\n")

    return say
