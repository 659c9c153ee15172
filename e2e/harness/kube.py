"""Access to a cluster with kubectl and the administrator's rights."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from e2e.cluster.paths import BINS

Json = dict[str, Any]
_POLL_S = 0.2
PATIENCE = 5.0
"""Factor on all timeouts: CI machines are up to five times slower than an idle one."""


class Kube:
    """kubectl with one kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}

    def run(self, *words: str, given: str | None = None, ok: bool = True) -> str:
        """Runs kubectl; returns its output, empty where it failed and may fail.

        Raises:
            AssertionError: kubectl failed, and must succeed.
        """
        done = self.program("kubectl", *words, given=given)
        assert not ok or done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr.strip()}"
        return done.stdout if done.returncode == 0 else ""

    def program(
        self, name: str, *words: str, given: str | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Runs a program that reads KUBECONFIG to its end."""
        return subprocess.run(
            [program(name), *words],
            capture_output=True,
            text=True,
            input=given,
            check=False,
            env=self.environment,
        )

    def token(self) -> str:
        """Returns the kubeconfig's bearer token; only the e2e cluster has one in the file."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        return str(config["users"][0]["user"]["token"])

    def get(self, *words: str) -> Json:
        """Returns the result of ``kubectl get ... -o json``; empty where there is nothing."""
        said = self.run("get", *words, "--output=json", ok=False)
        found: Json = json.loads(said) if said else {}
        return found

    def items(self, *words: str) -> list[Json]:
        """Returns the objects of a list."""
        found: list[Json] = self.get(*words).get("items", [])
        return found

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Applies objects."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.run("apply", "--filename=-", given=json.dumps(listed))

    def namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Creates a namespace, or sets these labels on it."""
        meta = {"name": name, "labels": dict(labels or {})}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})


def program(name: str) -> str:
    """Returns the path of kubectl or helm: built for the e2e cluster, or from PATH."""
    built = BINS / name
    found = str(built) if built.is_file() else shutil.which(name)
    assert found, f"{name} is not there: put it on PATH, or build it with `make cluster-up`"
    return found


def until(holds: Callable[[], bool], what: str, within_s: float = 60.0) -> float:
    """Waits for a condition; returns the seconds it took.

    Args:
        holds: the condition, called repeatedly.
        what: the condition in words.
        within_s: timeout for an idle machine, multiplied by :data:`PATIENCE`.

    Raises:
        AssertionError: the condition was not true in time.
    """
    start = time.monotonic()
    while not holds():
        waited = time.monotonic() - start
        assert waited < PATIENCE * within_s, f"{what}: not within {waited:.0f} s"
        time.sleep(_POLL_S)
    return time.monotonic() - start


def condition(found: Mapping[str, Any], name: str) -> Json:
    """Returns a condition of an object's status; empty where it has none of that type."""
    listed: Sequence[Json] = (found.get("status") or {}).get("conditions") or []
    return next((c for c in listed if c["type"] == name), {})
