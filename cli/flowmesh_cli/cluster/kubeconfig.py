"""Reads the user's kubeconfig: cluster, namespace and credentials."""

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.installation import install_command
from flowmesh_sdk.cluster_workflows import bearer_token

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

TOKEN_VARIABLE = "FLOWMESH_TOKEN"
_DEFAULT_NAMESPACE = "default"


class Kubeconfig:
    """One context of a kubeconfig, or the service account of the pod that ``fmesh`` runs in."""

    def __init__(self, place: Target) -> None:
        """Loads the context, unless a gateway's address and a token are given in its place.

        Raises:
            CliError: there is no kubeconfig or no such context, kubernetes is not installed, or
                a gateway's address is given without a token.
        """
        self._place = place
        self.file = str(place.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config")
        self.context, self.namespace = "", _DEFAULT_NAMESPACE
        self._configuration: Any = None
        if not self._is_replaced():
            self._load()

    def _is_replaced(self) -> bool:
        """Whether a server and a token are given, and no kubeconfig can be read beside them.

        Raises:
            CliError: neither a token nor a kubeconfig is given with the server.
        """
        place = self._place
        if not place.server or place.context or place.kubeconfig:
            return False
        is_there = self._in_pod() or any(
            Path(file).expanduser().exists() for file in self.file.split(os.pathsep)
        )
        if is_there and importlib.util.find_spec("kubernetes") is not None:
            return False
        if not os.environ.get(TOKEN_VARIABLE):
            if is_there:
                return False  # what is missing is the package, which is said when it is loaded
            raise CliError(
                "the server needs a token",
                ExitCode.USAGE,
                where=f"--server {place.server}",
                remedy=f"set {TOKEN_VARIABLE}, or use the token of a kubeconfig (--kubeconfig)",
            )
        return True

    def _load(self) -> None:
        client, config = _kubernetes()
        self._configuration = client.Configuration()
        try:
            if self._in_pod():
                config.load_incluster_config(client_configuration=self._configuration)
                self.context = "the pod's service account"
                self.namespace = _pod_namespace()
                return
            self._choose(config.list_kube_config_contexts(self._given_file()))
            config.load_kube_config(
                self._given_file(),
                context=self.context,
                client_configuration=self._configuration,
                persist_config=False,
            )
        except (config.ConfigException, OSError, ValueError) as e:
            raise CliError(
                f"the kubeconfig cannot be used: {e}",
                ExitCode.USAGE,
                where=self.file,
                remedy="`kubectl config get-contexts` lists its contexts; choose with --context, "
                "--kubeconfig or KUBECONFIG",
            ) from e

    def client(self) -> "ApiClient":
        """Returns a client of the API server with the user's rights; raises as the constructor."""
        client, _ = _kubernetes()
        if self._configuration is None:
            self._load()
        return client.ApiClient(self._configuration)

    def token(self, *, renewed: bool) -> str:
        """Returns the user's bearer token: FLOWMESH_TOKEN, or the kubeconfig's.

        Args:
            renewed: reload the kubeconfig: a plugin or a file may give a newer token.

        Raises:
            CliError: the user signs in by a method that only the API server can check.
        """
        from_environment = os.environ.get(TOKEN_VARIABLE, "")
        if from_environment:
            return from_environment
        if renewed:
            self._load()
        header = self._configuration.get_api_key_with_prefix("BearerToken") or ""
        if token := bearer_token(header):
            return token
        signs = "a client certificate" if self._configuration.cert_file else "no token"
        raise CliError(
            f"context {self.context!r} signs in with {signs}: the gateway accepts only tokens",
            ExitCode.USAGE,
            where=self.file,
            remedy=f"create a token of a service account that has your rights: {TOKEN_VARIABLE}="
            "$(kubectl create token NAME -n NAMESPACE --audience flowmesh)",
        )

    def _choose(self, found: Any) -> None:
        contexts, active = found
        wanted = self._place.context or (active or {}).get("name", "")
        chosen = next((c for c in contexts if c["name"] == wanted), None)
        if chosen is None:
            names = ", ".join(str(c["name"]) for c in contexts[:8])
            raise ValueError(f"it has no context {wanted!r}, but {names or 'none'}")
        self.context = wanted
        self.namespace = chosen["context"].get("namespace") or _DEFAULT_NAMESPACE

    def _given_file(self) -> str | None:
        return None if self._place.kubeconfig is None else str(self._place.kubeconfig)

    def _in_pod(self) -> bool:
        named = self._place.context or self._place.kubeconfig or os.environ.get("KUBECONFIG")
        here = "KUBERNETES_SERVICE_HOST" in os.environ
        return here and not named and not Path(self.file).expanduser().exists()


def _kubernetes() -> tuple[Any, Any]:
    try:
        from kubernetes import client, config  # noqa: PLC0415 - 1 s, and not in the base install
    except ImportError as e:
        raise CliError(
            "a cluster needs the package kubernetes, which is not installed",
            ExitCode.USAGE,
            remedy=install_command("cluster"),
        ) from e
    return client, config


def _pod_namespace() -> str:
    file = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
    return file.read_text().strip() if file.exists() else _DEFAULT_NAMESPACE
