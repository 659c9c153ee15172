"""``python -m flowmesh_operator.bootstrap``: creates an installation's missing Secrets.

The chart's Job runs it. Keys are generated here and not in the chart's templates, so that the chart
renders the same objects every time: ``helm template | kubectl apply`` twice changes no key. It
never changes an existing Secret; of two Jobs at once, the first to create a Secret wins.

A master key that was made before and is missing now is never replaced: the store's records are
sealed with it. The key is made before everything else, and its making is recorded in a ConfigMap,
so that the ConfigMap, or another Secret of this Job, shows that there was one.
"""

import argparse
import base64
import datetime
import hashlib
import json
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
MASTER_KEY_RECORD = "flowmesh-master-key-created"
"""The ConfigMap that says that a master key was made."""
STORE_OPERATOR = "flowmesh-store-operator"
KEDA_PAIR = "flowmesh-keda-pair"
_ACCESS, _SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
_KEDA_DAYS = 3650
_STORE_KEY_BYTES = 30
_GENERATED = "flowmesh.dev/generated"
_MANAGED_BY, _THIS_JOB = "app.kubernetes.io/managed-by", "flowmesh-secrets"

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
        """Returns the Secret's manifest, with a digest of its content among the annotations.

        The chart reads the digest: as long as it holds, a pod that was created with the Secret has
        its content, and an upgrade need not replace it.
        """
        data = {key: base64.b64encode(value).decode() for key, value in content.items()}
        lines = "".join(f"{key}={data[key]}\n" for key in sorted(data))
        meta = _metadata(self.name, self.part)
        meta["annotations"] = {_GENERATED: hashlib.sha256(lines.encode()).hexdigest()}
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
    """Yields the Secrets that an installation needs, the master key first.

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
    if master_key:
        yield RequiredSecret(
            MASTER_KEY, "operator", ("master-key",),
            lambda: {"master-key": encode_ring(new_ring())},
        )  # fmt: skip
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
    api: "kubernetes.client.CoreV1Api",
    namespace: str,
    wanted: Sequence[RequiredSecret],
    *,
    loses_results: bool = False,
) -> Iterator[str]:
    """Creates the Secrets that are missing; yields a line for each Secret.

    Args:
        api: the API server.
        namespace: the namespace of the Secrets.
        wanted: the required Secrets, the master key first.
        loses_results: replace a master key that is missing, and give up what it sealed.

    Raises:
        BootstrapError: a Secret cannot be read or created, or lacks a key, or is the master key of
            an installation that had one.
    """
    found = {w.name: s for w in wanted if (s := _read(api, namespace, w)) is not None}
    for secret in wanted:
        if secret.name in found:
            yield f"Secret {secret.name} exists and is not changed"
        elif (
            secret.name == MASTER_KEY
            and not loses_results
            and (_is_lost(api, namespace, secret, found.values()))
        ):
            raise _lost_key(namespace)
        elif _create(api, namespace, secret, secret.make()):
            yield f"Secret {secret.name} was created"
        elif _read(api, namespace, secret) is None:
            raise BootstrapError(
                "was created by another Job and deleted again",
                where=f"Secret {namespace}/{secret.name}",
                remedy="find out what deletes it, then run this Job again",
            )
        else:
            yield f"Secret {secret.name} was created by another Job"
        if secret.name == MASTER_KEY:
            _record_master_key(api, namespace, secret)


def _is_lost(
    api: "kubernetes.client.CoreV1Api",
    namespace: str,
    secret: RequiredSecret,
    others: Iterable["kubernetes.client.V1Secret"],
) -> bool:
    """Whether the missing master key was made before: whatever else this Job makes comes later."""
    made = any((o.metadata.labels or {}).get(_MANAGED_BY) == _THIS_JOB for o in others)
    if not made:
        try:
            api.read_namespaced_config_map(MASTER_KEY_RECORD, namespace)
        except kubernetes.client.ApiException as e:
            if e.status == HTTPStatus.NOT_FOUND:
                return False
            raise _refused("read its record", namespace, secret, e) from e
    # Another Job may have made the key, and then the rest, since this one looked for it.
    return _read(api, namespace, secret) is None


def _lost_key(namespace: str) -> BootstrapError:
    file = "/etc/flowmesh/master-key/master-key"
    return BootstrapError(
        "is missing, and the store's records are sealed with it: a new key would lose all results"
        " and runs",
        where=f"Secret {namespace}/{MASTER_KEY}",
        remedy="restore it from a backup, or from an operator's pod that still runs: kubectl -n"
        f" {namespace} exec deploy/flowmesh-operator -- cat {file} > master-key, then kubectl -n"
        f" {namespace} create secret generic {MASTER_KEY} --from-file=master-key. With a new store,"
        f" or to accept the loss, set masterKey.loseResults=true for one upgrade",
    )


def _record_master_key(
    api: "kubernetes.client.CoreV1Api", namespace: str, secret: RequiredSecret
) -> None:
    """Writes down that there is a master key, also for one that an earlier release made."""
    text = f"The master key of this installation is in the Secret {MASTER_KEY}."
    body = {
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"about": text},
        "metadata": _metadata(MASTER_KEY_RECORD, secret.part),
    }  # fmt: skip
    try:
        api.create_namespaced_config_map(namespace, body)
    except kubernetes.client.ApiException as e:
        if e.status != HTTPStatus.CONFLICT:
            raise _refused("record", namespace, secret, e) from e


def _read(
    api: "kubernetes.client.CoreV1Api", namespace: str, wanted: RequiredSecret
) -> "kubernetes.client.V1Secret | None":
    """Reads a Secret; None where there is none; one that lacks a key is an error."""
    try:
        found = api.read_namespaced_secret(wanted.name, namespace)
    except kubernetes.client.ApiException as e:
        if e.status == HTTPStatus.NOT_FOUND:
            return None
        raise _refused("read", namespace, wanted, e) from e
    data = found.data or {}
    missing = [key for key in wanted.keys if not data.get(key)]
    if missing:
        raise BootstrapError(
            f"lacks {', '.join(missing)}",
            where=f"Secret {namespace}/{wanted.name}",
            remedy="restore it from a backup"
            + ("" if wanted.name == MASTER_KEY else ", or delete it: this Job creates a new one"),
        )
    return found


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


def _metadata(name: str, part: str) -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/name": "flowmesh",
        "app.kubernetes.io/component": part,
        _MANAGED_BY: _THIS_JOB,
    }
    return {"name": name, "labels": labels}


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
    parser.add_argument(
        "--lose-results",
        action="store_true",
        help="replace a master key that is missing, and give up the store's results and runs",
    )
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
        api, loses = kubernetes.client.CoreV1Api(), given.lose_results
        for line in create_missing(api, given.namespace, wanted, loses_results=loses):
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
