"""KEDA in the cluster, during a block."""

import base64
import time
from collections.abc import Iterator
from contextlib import contextmanager

import trustme
from e2e.cluster.keda import API_SERVICE, CERTIFICATES, NAMESPACE, as_list, manifests
from e2e.harness.kube import Json, Kube, condition, until

_HERE = f"--namespace={NAMESPACE}"
_ADAPTER = "keda-metrics-apiserver"


@contextmanager
def keda(kube: Kube) -> Iterator[float]:
    """Installs KEDA's operator and metrics adapter, which serves external metrics, for a block.

    The image must be in the cluster. ScaledObjects must be deleted before the block ends, because
    KEDA itself removes their finalizers.

    Yields:
        The seconds that the installation took.
    """
    assert not kube.get("apiservice", API_SERVICE), "somebody else answers for external metrics"
    authority, start = trustme.CA(), time.monotonic()
    items = [*(_trusting(item, authority) for item in manifests()), _certificates(authority)]
    try:
        _apply(kube, items)
        until(lambda: _serves(kube), "KEDA's metrics adapter answers the API server", 180)
        until(lambda: _runs(kube, "keda-operator"), "KEDA's operator is ready", 120)
        yield time.monotonic() - start
    except AssertionError as e:
        raise AssertionError(f"{e}\n{_state(kube)}") from None
    finally:
        words = ("delete", "--ignore-not-found", "--timeout=120s", "--filename=-")
        kube.run(*words, given=as_list(items[::-1]))


def _apply(kube: Kube, items: list[Json]) -> None:
    """Applies server-side: kubectl's annotation would be too large for the definitions."""
    first = [item for item in items if item["kind"] == "Namespace"]
    kube.run("apply", "--server-side", "--filename=-", given=as_list(first))
    kube.run("apply", "--server-side", "--filename=-", given=as_list(items))


def _trusting(item: Json, authority: trustme.CA) -> Json:
    if item["kind"] == "APIService":
        bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
        item["spec"]["caBundle"] = bundle
    return item


def _certificates(authority: trustme.CA) -> Json:
    names = [
        f"{service}.{NAMESPACE}.svc{domain}"
        for service in ("keda-operator", _ADAPTER)
        for domain in ("", ".cluster.local")
    ]
    leaf = authority.issue_cert(*names)
    chain = b"".join(part.bytes() for part in leaf.cert_chain_pems)
    data = {
        "ca.crt": authority.cert_pem.bytes(),
        "tls.crt": chain,
        "tls.key": leaf.private_key_pem.bytes(),
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": CERTIFICATES, "namespace": NAMESPACE},
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }


def _serves(kube: Kube) -> bool:
    said = condition(kube.get("apiservice", API_SERVICE), "Available")
    return said.get("status") == "True"


def _runs(kube: Kube, deployment: str) -> bool:
    found = kube.get("deployment", deployment, _HERE)
    return condition(found, "Available").get("status") == "True"


def _state(kube: Kube) -> str:
    """Returns the state of KEDA's namespace, for the message of a failure."""
    parts = [kube.run("get", "pods,events", _HERE, ok=False)]
    parts.append(
        kube.run("get", "scaledobjects,hpa", "--all-namespaces", "--output=yaml", ok=False)
    )
    for name in ("keda-operator", _ADAPTER):
        words = ("logs", _HERE, f"deployment/{name}", "--tail=60")
        parts.append(kube.run(*words, ok=False))
    return "\n".join(parts)
