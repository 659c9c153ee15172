"""The times of the parts of a start, from watches: the first occurrence of each."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import kubernetes
import urllib3
from e2e.harness.kube import Json, condition
from kubernetes.watch import Watch

_WATCH_S = 600


class Timeline:
    """Marks by name, in seconds since the start; the first occurrence of each counts."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client = kubernetes.config.new_client_from_config(str(kubeconfig))
        self._marks: dict[str, float] = {}
        self._stop = threading.Event()
        self._start = time.monotonic()

    def start(self) -> None:
        """Sets the start time to now."""
        self._start = time.monotonic()

    def mark(self, name: str) -> None:
        """Records the time of a mark, unless it has one."""
        self._marks.setdefault(name, time.monotonic() - self._start)

    def marks(self) -> dict[str, float]:
        """Returns all marks, by time."""
        return dict(sorted(self._marks.items(), key=lambda item: item[1]))

    def end(self) -> None:
        """Ends the watches, at their next event at the latest."""
        self._stop.set()

    def follow_workflows(self, namespace: str, seen: Callable[["Timeline", Json], None]) -> None:
        """Watches a namespace's workflows."""
        api = kubernetes.client.CustomObjectsApi(self._client)
        where = ("flowmesh.dev", "v1alpha1", namespace, "flowmeshworkflows")
        self._follow(lambda watch: watch.stream(
            api.list_namespaced_custom_object, *where, timeout_seconds=_WATCH_S), seen)  # fmt: skip

    def follow_deployments(self, namespace: str, seen: Callable[["Timeline", Json], None]) -> None:
        """Watches a namespace's Deployments."""
        api = kubernetes.client.AppsV1Api(self._client)
        self._follow(lambda watch: watch.stream(
            api.list_namespaced_deployment, namespace, timeout_seconds=_WATCH_S), seen)  # fmt: skip

    def follow_pods(self, namespace: str, seen: Callable[["Timeline", Json], None]) -> None:
        """Watches a namespace's pods."""
        api = kubernetes.client.CoreV1Api(self._client)
        self._follow(lambda watch: watch.stream(
            api.list_namespaced_pod, namespace, timeout_seconds=_WATCH_S), seen)  # fmt: skip

    def _follow(
        self, stream: Callable[[Watch], Any], seen: Callable[["Timeline", Json], None]
    ) -> None:
        def watch() -> None:
            while not self._stop.is_set():
                # If the API server is away, the next try has a better error than this one.
                with suppress(urllib3.exceptions.HTTPError):
                    for event in stream(Watch()):
                        if self._stop.is_set():
                            return
                        seen(self, event["raw_object"])

        threading.Thread(target=watch, daemon=True).start()


def pod_parts(pool: str) -> Callable[[Timeline, Json], None]:
    """Marks the parts of the start of a pool's first pod."""

    def seen(line: Timeline, pod: Mapping[str, Any]) -> None:
        if (pod["metadata"].get("labels") or {}).get("flowmesh.dev/pool") != pool:
            return
        line.mark("pod made")
        if condition(pod, "PodScheduled").get("status") == "True":
            line.mark("pod scheduled")
        for state in (pod.get("status") or {}).get("containerStatuses") or []:
            if "running" in state["state"]:
                line.mark("container started")
        if condition(pod, "Ready").get("status") == "True":
            line.mark("worker joined")

    return seen


class Joined:
    """Marks when the workers of a pool become ready, with their number."""

    def __init__(self, pool: str) -> None:
        self._pool = pool
        self._ready: set[str] = set()

    def __call__(self, line: Timeline, pod: Mapping[str, Any]) -> None:
        """Processes a pod's event."""
        meta = pod["metadata"]
        if (meta.get("labels") or {}).get("flowmesh.dev/pool") != self._pool:
            return
        if condition(pod, "Ready").get("status") == "True":
            self._ready.add(meta["uid"])
            line.mark(f"worker {len(self._ready)} joined")
