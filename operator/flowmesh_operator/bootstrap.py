"""``python -m flowmesh_operator.bootstrap``: creates an installation's Secrets that are missing.

The chart's Job runs it. Keys are made here and not in the chart's templates, so that the chart
renders the same objects every time: ``helm template | kubectl apply`` twice changes no key. What is
there is never changed; of two Jobs at once the first to create a Secret wins.
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

from flowmesh_control.auth.master_key import KEY_BYTES
from flowmesh_core.errors import FlowMeshError
from flowmesh_operator.access.gateway_certificate import gateway_certificate, self_signed
from flowmesh_operator.kube.connection import load_configuration

GATEWAY_TLS = "flowmesh-gateway-tls"
MASTER_KEY = "flowmesh-master-key"
STORE_OPERATOR = "flowmesh-store-operator"
STORE_WORKER = "flowmesh-store-worker"
STORE_ACCOUNTS = "flowmesh-store-accounts"
KEDA_PAIR = "flowmesh-keda-pair"
_ACCESS, _SECRET, _USERS = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "users.json"
_WORKER_ACCOUNT = "flowmesh-worker"
_KEDA_DAYS = 3650
_STORE_KEY_BYTES = 30

Content = dict[str, bytes]
Contents = Mapping[str, Mapping[str, bytes]]


class BootstrapError(FlowMeshError):
    """A Secret cannot be created, or one that is there lacks a key."""


@dataclass(frozen=True, slots=True)
class RequiredSecret:
    """A Secret that the installation needs.

    Attributes:
        name: its name.
        part: the component that it belongs to, as the chart labels it.
        keys: the keys that it must have.
        make: its content where it is missing, from the contents of those that exist.
        type: its type.
    """

    name: str
    part: str
    keys: tuple[str, ...]
    make: Callable[[Contents], Content]
    type: str = "Opaque"

    def manifest(self, content: Mapping[str, bytes]) -> dict[str, Any]:
        """The Secret as an object."""
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
    *, hosts: Sequence[str], days: int, master_key: bool, store: bool, keda: bool
) -> Iterator[RequiredSecret]:
    """Yields the Secrets that an installation needs.

    Args:
        hosts: names that the gateway's certificate is good for; none: no certificate.
        days: how long the certificate holds, in days.
        master_key: whether the master key is the installation's own.
        store: whether it runs its own S3 server.
        keda: whether KEDA reads the gateway's metrics.
    """
    now = datetime.datetime.now(datetime.UTC)
    if hosts:
        yield RequiredSecret(
            GATEWAY_TLS, "operator", ("ca.crt", "tls.crt", "tls.key"),
            lambda _: gateway_certificate(hosts, days, now), type="kubernetes.io/tls",
        )  # fmt: skip
    if master_key:
        yield RequiredSecret(
            MASTER_KEY, "operator", ("master-key",),
            lambda _: {"master-key": secrets.token_bytes(KEY_BYTES)},
        )  # fmt: skip
    if store:
        pair = (_ACCESS, _SECRET)
        yield RequiredSecret(STORE_OPERATOR, "store", pair, lambda _: _account("flowmesh-operator"))
        yield RequiredSecret(STORE_WORKER, "store", pair, _worker_account)
        yield RequiredSecret(STORE_ACCOUNTS, "store", (_USERS,), _accounts)
    if keda:
        yield RequiredSecret(
            KEDA_PAIR, "keda", ("tls.crt", "tls.key"),
            # Nobody trusts the pair: KEDA checks the gateway's certificate against an authority of
            # one's own only where it has a pair to show.
            lambda _: self_signed("flowmesh-keda", _KEDA_DAYS, now), type="kubernetes.io/tls",
        )  # fmt: skip


def create_missing(
    api: "kubernetes.client.CoreV1Api", namespace: str, wanted: Sequence[RequiredSecret]
) -> Iterator[str]:
    """Creates the Secrets that are missing; yields a line for each Secret.

    Args:
        api: the API server.
        namespace: where they belong.
        wanted: what is needed, in an order in which each needs only earlier ones.

    Raises:
        BootstrapError: one cannot be read or created, or lacks a key.
    """
    found = {w.name: c for w in wanted if (c := _read(api, namespace, w)) is not None}
    for secret in wanted:
        if secret.name in found:
            yield f"Secret {secret.name} is there and stays as it is"
            continue
        made = secret.make(found)
        if _create(api, namespace, secret, made):
            found[secret.name] = made
            yield f"Secret {secret.name} is created"
            continue
        other = _read(api, namespace, secret)
        if other is None:
            raise BootstrapError(
                "was created and deleted again meanwhile",
                where=f"Secret {namespace}/{secret.name}",
                remedy="find out who deletes it, then run this Job again",
            )
        found[secret.name] = other
        yield f"Secret {secret.name} was created by another Job meanwhile"


def _read(
    api: "kubernetes.client.CoreV1Api", namespace: str, wanted: RequiredSecret
) -> dict[str, bytes] | None:
    try:
        data = api.read_namespaced_secret(wanted.name, namespace).data or {}
    except kubernetes.client.ApiException as e:
        if e.status == HTTPStatus.NOT_FOUND:
            return None
        raise _refused("read", namespace, wanted, e) from e
    missing = [key for key in wanted.keys if not data.get(key)]
    if missing:
        raise BootstrapError(
            f"lacks {', '.join(missing)}",
            where=f"Secret {namespace}/{wanted.name}",
            remedy="restore it from a copy"
            + ("" if wanted.name == MASTER_KEY else ", or delete it: it is made anew"),
        )
    return {key: base64.b64decode(value) for key, value in data.items()}


def _create(
    api: "kubernetes.client.CoreV1Api", namespace: str, wanted: RequiredSecret, content: Content
) -> bool:
    """Whether it was created; False where another did at the same time."""
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
        said = str(json.loads(e.body)["message"])
    except (TypeError, ValueError, KeyError):
        said = f"{e.status} {e.reason}"
    remedy = (
        "the chart's Role flowmesh-secrets grants it: apply the whole chart, or create the Secret"
        " yourself and name it in the values (existingSecret)"
        if e.status == HTTPStatus.FORBIDDEN
        else "the Job tries again; `kubectl describe` the namespace shows quotas and policies"
    )
    return BootstrapError(
        f"cannot {verb} it: {said}", where=f"Secret {namespace}/{wanted.name}", remedy=remedy
    )


def _account(name: str, secret: str = "") -> Content:
    key = secret or secrets.token_urlsafe(_STORE_KEY_BYTES)
    return {_ACCESS: name.encode(), _SECRET: key.encode()}


def _worker_account(found: Contents) -> Content:
    """The workers' account as the S3 server knows it already, else a new one."""
    known = ""
    if STORE_ACCOUNTS in found:
        users = json.loads(found[STORE_ACCOUNTS][_USERS])["accessAccounts"]
        known = users.get(_WORKER_ACCOUNT, {}).get("secret", "")
    return _account(_WORKER_ACCOUNT, known)


def _accounts(found: Contents) -> Content:
    """The S3 server's accounts beside the operator's, which owns everything."""
    worker = found[STORE_WORKER]
    name = worker[_ACCESS].decode()
    user = {"access": name, "secret": worker[_SECRET].decode(), "role": "user"}
    return {_USERS: json.dumps({"accessAccounts": {name: user}}).encode()}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m flowmesh_operator.bootstrap",
        description="Create the Secrets of an installation that are missing.",
    )
    parser.add_argument("--namespace", required=True, help="where the Secrets belong")
    parser.add_argument(
        "--host", action="append", default=[], help="a name that the gateway's certificate is for"
    )
    parser.add_argument("--days", type=int, default=3650, help="how long the certificate holds")
    parser.add_argument("--master-key", action="store_true", help="the key of references")
    parser.add_argument("--store", action="store_true", help="accounts of the chart's S3 server")
    parser.add_argument("--keda", action="store_true", help="what KEDA shows the gateway")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Creates what is missing; returns the exit code."""
    given = _parser().parse_args(arguments)
    wanted = list(
        wanted_secrets(
            hosts=given.host, days=given.days, master_key=given.master_key, store=given.store,
            keda=given.keda,
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
