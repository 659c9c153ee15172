"""FlowMesh installed in a cluster by its chart."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e2e.harness.kube import Json, Kube, condition, until

if TYPE_CHECKING:
    import subprocess

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "flowmesh"
NAMESPACE = "flowmesh"
RELEASE = "flowmesh"
LEADER = "app.kubernetes.io/component=operator,flowmesh.dev/leader=true"
OPERATORS = "app.kubernetes.io/name=flowmesh,app.kubernetes.io/component=operator"
_WAIT = "--timeout=900s"
_ENDED = ("Succeeded", "Failed", "Cancelled")


class Fabric:
    """One release of the chart, and the workflows that run on it.

    Attributes:
        chart: the packaged chart, as a release publishes it.
    """

    def __init__(self, kube: Kube, values: Sequence[Path], folder: Path) -> None:
        """Packages the chart into a folder."""
        self.kube = kube
        packaged = kube.program("helm", "package", str(CHART), f"--destination={folder}")
        assert packaged.returncode == 0, packaged.stderr
        (self.chart,) = folder.glob("flowmesh-*.tgz")
        self._values = [f"--values={file}" for file in values]

    def install(self, *sets: str) -> None:
        """Installs or upgrades the chart, and waits until everything is ready.

        Args:
            sets: values such as ``operator.replicas=3``.
        """
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.kube.namespace(NAMESPACE, labels)
        words = [word for value in sets for word in ("--set", value)]
        self.helm(
            "upgrade", "--install", RELEASE, str(self.chart), *self._values, *words, "--wait",
            _WAIT,
        )  # fmt: skip
        self.leader()

    def uninstall(self) -> str:
        """Uninstalls the release; returns helm's output."""
        return self.helm("uninstall", RELEASE, "--wait", _WAIT).stdout

    def helm(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Runs helm in the fabric's namespace.

        Raises:
            AssertionError: helm failed; has its output and the namespace's state.
        """
        done = self.kube.program("helm", "--namespace", NAMESPACE, *words)
        assert done.returncode == 0, f"{done.stderr.strip()}\n{self.state()}"
        return done

    def leaders(self) -> list[str]:
        """Returns the pods that have the leader's label and are not ending."""
        found = self.kube.items("pods", f"--namespace={NAMESPACE}", f"--selector={LEADER}")
        return [p["metadata"]["name"] for p in found if "deletionTimestamp" not in p["metadata"]]

    def leader(self) -> str:
        """Waits until exactly one pod leads; returns its name."""
        found: list[str] = []

        def one() -> bool:
            found[:] = self.leaders()
            return len(found) == 1

        until(one, "one operator pod carries the leader's label")
        return found[0]

    def workers(self, pool: str) -> list[Json]:
        """Returns the pods of a pool."""
        return self.kube.items(
            "pods", f"--namespace={NAMESPACE}", f"--selector=flowmesh.dev/pool={pool}"
        )

    def pod(self, component: str) -> Json:
        """Returns a ready pod of a component of the chart."""
        selector = f"app.kubernetes.io/name=flowmesh,app.kubernetes.io/component={component}"
        pods = self.kube.items("pods", f"--namespace={NAMESPACE}", f"--selector={selector}")
        return next(p for p in pods if condition(p, "Ready").get("status") == "True")

    def submit(self, namespace: str, name: str, spec: Mapping[str, Any]) -> None:
        """Applies a workflow."""
        self.kube.apply(workflow(namespace, name, spec))

    def look(self, namespace: str, name: str) -> Json:
        """Returns a workflow's object."""
        return self.kube.get("flowmeshworkflow", name, f"--namespace={namespace}")

    def status(self, namespace: str, name: str) -> Json:
        """Returns a workflow's status."""
        found: Json = self.look(namespace, name).get("status") or {}
        return found

    def finished(self, namespace: str, name: str, within_s: float = 120.0) -> Json:
        """Waits for a workflow's end; returns the last status.

        Raises:
            AssertionError: it did not end in time; has the reason of its wait.
        """
        try:
            until(
                lambda: self.status(namespace, name).get("phase") in _ENDED,
                f"{namespace}/{name} ends",
                within_s,
            )
        except AssertionError as e:
            shown = json.dumps(self.status(namespace, name), indent=1)
            raise AssertionError(f"{e}\n{shown}\n{self.state()}") from None
        return self.status(namespace, name)

    def completed(self, namespace: str, name: str, within_s: float = 120.0) -> Json:
        """Waits until a workflow has succeeded; returns the last status."""
        status = self.finished(namespace, name, within_s)
        assert condition({"status": status}, "Complete").get("status") == "True", json.dumps(
            status, indent=1
        )
        return status

    def state(self) -> str:
        """Returns the state of the namespace, for the message of a failure."""
        where = f"--namespace={NAMESPACE}"
        parts = [self.kube.run("get", "all,fmwp", where, "--output=wide", ok=False)]
        parts.append(self.kube.run("get", "events", where, "--sort-by=.lastTimestamp", ok=False))
        parts.append(self.kube.run("get", "fmw", "--all-namespaces", ok=False))
        for pod in self.kube.items("pods", where):
            name = pod["metadata"]["name"]
            logs = self.kube.run("logs", where, name, "--all-containers", "--tail=40", ok=False)
            parts.append(f"--- {name}\n{logs}")
        return "\n".join(parts)


def workflow(namespace: str, name: str, spec: Mapping[str, Any]) -> Json:
    """Returns a workflow object."""
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": name, "namespace": namespace},
        "spec": dict(spec),
    }
