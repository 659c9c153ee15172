"""Pods in which clients run as users' programs do: they reach Services by their names."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import Json, until

BASE_IMAGE = "localhost/flowmesh-operator:e2e"
"""Has what the base distribution needs, and the extra ``[cluster]``."""
_CLIENT = "client"
_FOLDER = "/client"


def give_client(
    fabric: Fabric, namespace: str, script: Path, secret: str, name: str = _CLIENT
) -> None:
    """Gives pods of a namespace a script, ``client.py``, and the authority that it trusts.

    Args:
        fabric: has the secret.
        namespace: of the pods.
        script: the client.
        secret: whose ``ca.crt`` is the authority.
        name: of the ConfigMap that has both.
    """
    found = fabric.kube.get("secret", secret, f"--namespace={NAMESPACE}")
    files = {
        "client.py": script.read_text(),
        "ca.crt": base64.b64decode(found["data"]["ca.crt"]).decode(),
    }
    meta = {"name": name, "namespace": namespace}
    fabric.kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": files})


@dataclass(frozen=True)
class ClientPod:
    """A pod that runs a client; its last line is what the client found."""

    fabric: Fabric
    namespace: str
    name: str

    def start(
        self,
        image: str,
        arguments: Sequence[str],
        env: Mapping[str, str],
        files: str = _CLIENT,
        account: str = "default",
    ) -> None:
        """Starts the client.

        Args:
            image: has its libraries.
            arguments: of the script.
            env: of the script.
            files: the ConfigMap that :func:`give_client` has made.
            account: the pod's service account.
        """
        container: dict[str, Any] = {
            "name": _CLIENT,
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python", "-u", f"{_FOLDER}/client.py", *arguments],
            "env": [{"name": name, "value": value} for name, value in env.items()],
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
            "volumeMounts": [{"name": _CLIENT, "mountPath": _FOLDER}],
        }
        self.fabric.kube.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": self.name, "namespace": self.namespace},
                "spec": {
                    "restartPolicy": "Never",
                    "serviceAccountName": account,
                    "containers": [container],
                    "volumes": [{"name": _CLIENT, "configMap": {"name": files}}],
                },
            }
        )

    def log(self) -> str:
        """Returns what the client has printed."""
        return self.fabric.kube.run("logs", self.name, f"--namespace={self.namespace}", ok=False)

    def result(self, within_s: float = 120.0) -> Json:
        """Waits for the client's end; returns what it found."""

        def phase() -> str:
            found = self.fabric.kube.get("pod", self.name, f"--namespace={self.namespace}")
            return str((found.get("status") or {}).get("phase"))

        until(lambda: phase() in ("Succeeded", "Failed"), f"client {self.name} ends", within_s)
        text = self.log()
        assert phase() == "Succeeded", text
        found: Json = json.loads(text.splitlines()[-1])
        return found
