"""A user of the cluster with their own rights and ``kubectl fmesh``."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import program

WITHIN_S = 240.0


@dataclass
class User:
    """A service account with the role edit in one namespace, and its kubeconfig."""

    fabric: Fabric
    namespace: str
    folder: Path

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def begin(self) -> None:
        """Creates the account, its rights, its kubeconfig and the plugin."""
        run, where = self.fabric.kube.run, f"--namespace={self.namespace}"
        account = f"--serviceaccount={self.namespace}:user"
        run("create", "serviceaccount", "user", where)
        run("create", "rolebinding", "user", "--clusterrole=edit", account, where)
        forward = f"forward-{self.namespace}"
        run("create", "rolebinding", forward, "--role=flowmesh-forward", account, "-n", NAMESPACE)
        token = run("create", "token", "user", where).strip()
        config = yaml.safe_load(self.fabric.kube.kubeconfig.read_text())
        context = {"cluster": config["clusters"][0]["name"], "user": "user"}
        config["users"] = [{"name": "user", "user": {"token": token}}]
        config["contexts"] = [{"name": "here", "context": {**context, "namespace": self.namespace}}]
        config["current-context"] = "here"
        self.kubeconfig.write_text(yaml.safe_dump(config))
        plugin = self.folder / "kubectl-fmesh"
        words = f"{shlex.quote(sys.executable)} -m flowmesh_cli.kubectl"
        plugin.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        plugin.chmod(0o755)

    def fmesh(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Runs ``kubectl fmesh``."""
        return subprocess.run(
            [program("kubectl"), "fmesh", *words],
            cwd=self.folder, capture_output=True, text=True, timeout=WITHIN_S, check=False,
            env={
                **os.environ,
                "KUBECONFIG": str(self.kubeconfig),
                "PATH": f"{self.folder}:{os.environ['PATH']}",
            },
        )  # fmt: skip

    def answer(self, *words: str) -> Any:
        """Runs ``kubectl fmesh --json``; returns the document."""
        done = self.fmesh(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
