"""Link certificates: what the hub of a worker proves itself with on other machines.

They are X.509 certificates that the control plane issues for each worker that has replicas, and
sends with the addresses of the routers. A hub shows its own when it connects to a router, or to the
hub of another worker, by mutual TLS; a router then accepts replicas of the namespaces that it names
and no others. Their authority follows from the master key, so they are valid across epochs. This
module has what they say; ``control.auth.link_signer`` issues them.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode

import msgspec

from flowmesh_core.errors import ProtocolError

LINK_KEYS = "flowmesh link certificates v1"
"""The purpose under which the keys of authorities are derived from the master keys."""
VALID_S = 3600.0
_PREFIX = "flowmesh://link?"
_NAMES = frozenset({"worker", "incarnation", "pool", "group"})
_NAMESPACE = "namespace"


class LinkClaims(msgspec.Struct, frozen=True):
    """What a certificate says.

    Attributes:
        worker: the worker's name.
        incarnation: the process of the worker that it was issued to.
        pool: the worker's pool.
        group: the routers that accept it.
        namespaces: those of whose services the worker was given replicas.
    """

    worker: str
    incarnation: str
    pool: str
    group: str
    namespaces: tuple[str, ...]


class LinkCertificate(msgspec.Struct, frozen=True):
    """A certificate with what its holder needs, all in PEM.

    Attributes:
        certificate: which anyone may see.
        key: its private key.
        authorities: certificates that those of other hubs are verified with.
    """

    certificate: str
    key: str
    authorities: str


def claims_uri(claims: LinkClaims) -> str:
    """Returns the URI that is the subject's only alternative name in a certificate."""
    names = [(name, getattr(claims, name)) for name in sorted(_NAMES)]
    return _PREFIX + urlencode([*names, *((_NAMESPACE, each) for each in claims.namespaces)])


def read_claims(uri: str) -> LinkClaims:
    """Returns what a certificate with this URI says.

    Raises:
        ProtocolError: it is not the URI of a link certificate.
    """
    found = parse_qs(uri.removeprefix(_PREFIX), keep_blank_values=True, max_num_fields=1 << 12)
    namespaces = tuple(found.pop(_NAMESPACE, ()))
    if not uri.startswith(_PREFIX) or found.keys() != _NAMES:
        raise ProtocolError(f"{uri[:80]!r} is not the name of a link certificate")
    return LinkClaims(**{name: values[0] for name, values in found.items()}, namespaces=namespaces)


def shown_claims(certificate: Mapping[str, Any] | None) -> LinkClaims:
    """Returns what the certificate of the other end says.

    Args:
        certificate: as ``ssl`` returns a certificate that it has verified.

    Raises:
        ProtocolError: there is none, or it is not a link certificate.
    """
    for kind, value in (certificate or {}).get("subjectAltName", ()):
        if kind == "URI":
            return read_claims(value)
    raise ProtocolError("the certificate is not a link certificate")
