"""``python -m flowmesh_operator.bootstrap``: creates an installation's missing Secrets.

The chart's Job runs it. Keys are generated here and not in the chart's templates, so that the chart
renders the same objects every time: ``helm template | kubectl apply`` twice changes no key. It
never changes an existing Secret; of two Jobs at once, the first to create a Secret wins.
"""

import argparse
import base64
import datetime
import json
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import kubernetes
import urllib3

from flowmesh_control.auth.master_key import encode_ring, new_ring
from flowmesh_core.errors import FlowMeshError
from flowmesh_operator.access.gateway_certificate import gateway_certificate, self_signed
from flowmesh_operator.kube.connection import load_configuration

GATEWAY_TLS = "flowmesh-gateway-tls"
ROUTER_TLS = "flowmesh-router-tls"
MASTER_KEY = "flowmesh-master-key"
STORE_OPERATOR = "flowmesh-store-operator"
KEDA_PAIR = "flowmesh-keda-pair"
_ACCESS, _SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
_KEDA_DAYS = 3650
_STORE_KEY_BYTES = 30

Content = dict[str, bytes]


class BootstrapError(FlowMeshError):
    """A Secret cannot be created, or an existing one lacks a key."""


@dataclass(frozen=True, slots=True)
class RequiredSecret:
    """A Secret that the installation needs.

    Attributes:
        name: its name.
        part: the value of its ``app.kubernetes.io/component`` label.
        keys: the keys that it must have.
        make: makes its content.
        type: its Kubernetes type.
    """

    name: str
    part: str
    keys: tuple[str, ...]
    make: Callable[[], Content]
    type: str = "Opaque"

    def manifest(self, content: Mapping[str, bytes]) -> dict[str, Any]:
        """Returns the Secret's manifest."""
        labels = {
            "app.kubernetes.io/name": "flowmesh",
            "app.kubernetes.io/component": self.part,
            "app.kubernetes.io/managed-by": "flowmesh-secrets",
        }
        meta = {"name": self.name, "labels": labels}
        data = {key: base64.b64encode(value).decode() for key, value in content.items()}
        return {
            "apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": self.type, "data": data,
        }  # fmt: skip


def wanted_secrets(
    *,
    hosts: Sequence[str],
    router_hosts: Sequence[str],
    days: int,
    master_key: bool,
    store: bool,
    keda: bool,
) -> Iterator[RequiredSecret]:
    """Yields the Secrets that an installation needs.

    Args:
        hosts: names that the gateway's certificate is valid for; none for no certificate.
        router_hosts: names that the routers' certificate is valid for, as ``hosts``. Its authority
            is another one, so that routers, which face clients, have no key of the gateway's.
        days: the certificates' validity, in days.
        master_key: whether the installation generates its master key.
        store: whether it runs its own S3 server.
        keda: whether KEDA reads the gateway's metrics.
    """
    now = datetime.datetime.now(datetime.UTC)
    if hosts:
        yield RequiredSecret(
            GATEWAY_TLS, "operator", ("ca.crt", "tls.crt", "tls.key"),
            lambda: gateway_certificate(hosts, days, now), type="kubernetes.io/tls",
        )  # fmt: skip
    if router_hosts:
        yield RequiredSecret(
            ROUTER_TLS, "router", ("ca.crt", "tls.crt", "tls.key"),
            lambda: gateway_certificate(router_hosts, days, now), type="kubernetes.io/tls",
        )  # fmt: skip
    if master_key:
        yield RequiredSecret(
            MASTER_KEY, "operator", ("master-key",),
            lambda: {"master-key": encode_ring(new_ring())},
        )  # fmt: skip
    if store:
        pair = (_ACCESS, _SECRET)
        yield RequiredSecret(STORE_OPERATOR, "store", pair, lambda: _account("flowmesh-operator"))
    if keda:
        yield RequiredSecret(
            KEDA_PAIR, "keda", ("tls.crt", "tls.key"),
            # No server trusts it: KEDA checks the gateway's certificate against a private authority
            # only where it has a client certificate to present.
            lambda: self_signed("flowmesh-keda", _KEDA_DAYS, now), type="kubernetes.io/tls",
        )  # fmt: skip


def create_missing(
    api: "kubernetes.client.CoreV1Api", namespace: str, wanted: Sequence[RequiredSecret]
) -> Iterator[str]:
    """Creates the Secrets that are missing; yields a line for each Secret.

    Args:
        api: the API server.
        namespace: the namespace of the Secrets.
        wanted: the required Secrets.

    Raises:
        BootstrapError: a Secret cannot be read or created, or lacks a key.
    """
    found = {w.name for w in wanted if _exists(api, namespace, w)}
    for secret in wanted:
        if secret.name in found:
            yield f"Secret {secret.name} exists and is not changed"
            continue
        if _create(api, namespace, secret, secret.make()):
            yield f"Secret {secret.name} was created"
            continue
        if not _exists(api, namespace, secret):
            raise BootstrapError(
                "was created by another Job and deleted again",
                where=f"Secret {namespace}/{secret.name}",
                remedy="find out what deletes it, then run this Job again",
            )
        yield f"Secret {secret.name} was created by another Job"


def _exists(api: "kubernetes.client.CoreV1Api", namespace: str, wanted: RequiredSecret) -> bool:
    """Whether a Secret exists; one that lacks a key is an error."""
    try:
        data = api.read_namespaced_secret(wanted.name, namespace).data or {}
    except kubernetes.client.ApiException as e:
        if e.status == HTTPStatus.NOT_FOUND:
            return False
        raise _refused("read", namespace, wanted, e) from e
    missing = [key for key in wanted.keys if not data.get(key)]
    if missing:
        raise BootstrapError(
            f"lacks {', '.join(missing)}",
            where=f"Secret {namespace}/{wanted.name}",
            remedy="restore it from a backup"
            + ("" if wanted.name == MASTER_KEY else ", or delete it: this Job creates a new one"),
        )
    return True


def _create(
    api: "kubernetes.client.CoreV1Api", namespace: str, wanted: RequiredSecret, content: Content
) -> bool:
    """Creates the Secret; returns False where another Job created it at the same time."""
    try:
        api.create_namespaced_secret(namespace, wanted.manifest(content))
    except kubernetes.client.ApiException as e:
        if e.status == HTTPStatus.CONFLICT:
            return False
        raise _refused("create", namespace, wanted, e) from e
    return True


def _refused(
    verb: str, namespace: str, wanted: RequiredSecret, e: "kubernetes.client.ApiException"
) -> BootstrapError:
    try:
        reason = str(json.loads(e.body)["message"])
    except (TypeError, ValueError, KeyError):
        reason = f"{e.status} {e.reason}"
    remedy = (
        "the chart's Role flowmesh-secrets grants it: apply the whole chart, or create the Secret"
        " yourself and name it in the values (existingSecret)"
        if e.status == HTTPStatus.FORBIDDEN
        else "the Job tries again; `kubectl describe` the namespace shows quotas and policies"
    )
    return BootstrapError(
        f"cannot {verb} it: {reason}", where=f"Secret {namespace}/{wanted.name}", remedy=remedy
    )


def _account(name: str) -> Content:
    return {_ACCESS: name.encode(), _SECRET: secrets.token_urlsafe(_STORE_KEY_BYTES).encode()}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m flowmesh_operator.bootstrap",
        description="Create the missing Secrets of an installation.",
    )
    parser.add_argument("--namespace", required=True, help="namespace of the Secrets")
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        help="DNS name for the certificate of the gateway",
    )
    parser.add_argument(
        "--router-host",
        action="append",
        default=[],
        help="DNS name for the certificate of the routers",
    )
    parser.add_argument("--days", type=int, default=3650, help="validity of the certificate, days")
    parser.add_argument("--master-key", action="store_true", help="create the master key")
    parser.add_argument("--store", action="store_true", help="create the S3 server's account")
    parser.add_argument("--keda", action="store_true", help="create KEDA's client certificate")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Creates the missing Secrets; returns the exit code."""
    given = _parser().parse_args(arguments)
    wanted = list(
        wanted_secrets(
            hosts=given.host, router_hosts=given.router_host, days=given.days,
            master_key=given.master_key, store=given.store, keda=given.keda,
        )
    )  # fmt: skip
    try:
        load_configuration()
        for line in create_missing(kubernetes.client.CoreV1Api(), given.namespace, wanted):
            sys.stdout.write(f"{line}\n")
    except FlowMeshError as e:
        sys.stderr.write(f"{e}\n")
        return 1
    except urllib3.exceptions.HTTPError as e:
        sys.stderr.write(f"the API server does not answer: {e}; the Job tries again\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
