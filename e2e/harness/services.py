"""Services of a tenant, and pods that call them."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from e2e.harness.client_pod import BASE_IMAGE, ClientPod, give_client
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import PATIENCE, Json
from e2e.harness.user import User

_CLIENT = Path(__file__).parent / "service_client.py"


@dataclass
class Service:
    """A service in a tenant's namespace, with a token of the tenant."""

    fabric: Fabric
    user: User
    name: str
    token: str = ""
    applied_s: float = 0.0
    token_ids: list[str] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return self.user.namespace

    def apply(self, replicas: dict[str, int]) -> None:
        """Applies a service of one engine; see :meth:`apply_spec`."""
        component = {
            "uses": "test.echo",
            "inputs": {},
            "replicas": replicas,
            "resources": {"memory": "700Mi"},  # so that a worker takes one
        }
        self.apply_spec({"inputs": {}, "components": {"echo": component}})

    def apply_spec(self, spec: Json) -> None:
        """Applies the service, and creates a token and what a client needs."""
        spec = {**spec, "openai": {"model": self.name}}
        self.applied_s = time.monotonic()
        self.fabric.kube.apply(
            {
                "apiVersion": "flowmesh.dev/v1alpha1",
                "kind": "FlowMeshService",
                "metadata": {"name": self.name, "namespace": self.namespace},
                "spec": spec,
            }
        )
        self.wait("Accepted", 60)
        made = self.user.answer("token", "create", self.name, "--expires", "1h")
        self.token = made["token"]
        self.token_ids.append(made["id"])
        give_client(self.fabric, self.namespace, _CLIENT, "flowmesh-router-tls")

    def object(self) -> Json:
        """Returns the object."""
        return self.fabric.kube.get("fms", self.name, f"--namespace={self.namespace}")

    def status(self) -> Json:
        """Returns its status."""
        found: Json = self.object().get("status") or {}
        return found

    def wait(self, condition: str, within_s: float) -> None:
        """Runs ``kubectl wait``."""
        self.fabric.kube.run(
            "wait", f"fms/{self.name}", f"--namespace={self.namespace}",
            f"--for=condition={condition}", f"--timeout={PATIENCE * within_s:.0f}s",
        )  # fmt: skip

    def revoke_tokens(self) -> None:
        """Revokes the tokens."""
        for token_id in self.token_ids:
            self.user.answer("token", "revoke", self.name, token_id)

    def delete(self) -> None:
        """Deletes the service."""
        self.fabric.kube.run("delete", "fms", self.name, f"--namespace={self.namespace}")

    def start(self, pod: str, *arguments: str, token: str = "") -> None:
        """Starts a client pod with these arguments, and a token in place of the service's."""
        env = {
            "TOKEN": token or self.token,
            "MODEL": self.name,
            "SERVICE": f"{self.namespace}/{self.name}",
            "FABRIC": NAMESPACE,
        }
        self._pod(pod).start(BASE_IMAGE, arguments, env)

    def log(self, pod: str) -> str:
        """Returns what a client pod has printed."""
        return self._pod(pod).log()

    def result(self, pod: str, within_s: float = 120.0) -> Json:
        """Waits for the end of a client pod; returns what it found."""
        return self._pod(pod).result(within_s)

    def _pod(self, name: str) -> ClientPod:
        return ClientPod(self.fabric, self.namespace, name)


def listening(fabric: Fabric, pod: str) -> list[str]:
    """Returns the sockets on which the worker of a pod accepts connections."""
    text = fabric.kube.run(
        "exec", f"--namespace={NAMESPACE}", pod, "--container=worker", "--",
        "cat", "/proc/net/tcp", "/proc/net/tcp6",
    )  # fmt: skip
    rows = [line.split() for line in text.splitlines() if not line.lstrip().startswith("sl")]
    return [row[1] for row in rows if row[3] == "0A"]
