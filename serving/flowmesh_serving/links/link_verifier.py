"""Verifies the link certificates of hubs that connect from other machines."""

import ssl
import time
from collections.abc import Callable, Iterable, Mapping

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.link_certificates import LinkClaims, read_claims


class LinkVerifier:
    """Verifies certificates for one group of routers."""

    def __init__(
        self,
        group: str = "",
        context: ssl.SSLContext | None = None,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        """Accepts nothing before :meth:`use`.

        Args:
            group: of the routers.
            context: with which hubs connect; None where they do not.
            unix_time: the clock.
        """
        self._group = group
        self._context = context
        self._unix_time = unix_time
        self._denied = frozenset[str]()
        self._known: dict[str, str] = {}
        self._authorities: tuple[x509.Certificate, ...] = ()

    def use(self, authorities: Mapping[str, str], denied_workers: Iterable[str] = ()) -> None:
        """Sets what is valid; the context keeps former authorities, which :meth:`verify` refuses.

        Args:
            authorities: certificates in PEM, by key id.
            denied_workers: whose certificates are not valid.
        """
        self._denied = frozenset(denied_workers)
        if dict(authorities) == self._known:
            return
        self._known = dict(authorities)
        self._authorities = tuple(
            x509.load_pem_x509_certificate(text.encode()) for text in authorities.values()
        )
        if self._context is not None and authorities:
            self._context.load_verify_locations(cadata="".join(authorities.values()))

    def verify(self, certificate: x509.Certificate) -> tuple[LinkClaims, float]:
        """Returns what a certificate says, and for how many seconds it is still valid.

        Raises:
            ProtocolError: it is not valid for these routers now.
        """
        if not any(_is_issued_by(certificate, each) for each in self._authorities):
            raise ProtocolError("the link certificate is not of this installation's authority")
        claims = _claims(certificate)
        if self.denies(claims.worker):
            raise ProtocolError(f"the control plane refuses the worker {claims.worker}")
        if claims.group != self._group:
            raise ProtocolError(f"the link certificate is for the routers {claims.group!r}")
        remaining_s = certificate.not_valid_after_utc.timestamp() - self._unix_time()
        if remaining_s <= 0:
            raise ProtocolError("the link certificate has expired")
        return claims, remaining_s

    def denies(self, worker: str) -> bool:
        """Returns whether a worker may not join."""
        return worker in self._denied


def read_pem(text: str) -> x509.Certificate:
    """Returns a certificate that is to be verified.

    Raises:
        ProtocolError: it cannot be read.
    """
    try:
        return x509.load_pem_x509_certificate(text.encode())
    except ValueError as error:
        raise ProtocolError(f"the link certificate cannot be read: {error}") from None


def _is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _claims(certificate: x509.Certificate) -> LinkClaims:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (x509.ExtensionNotFound, ValueError):
        raise ProtocolError("the certificate is not a link certificate") from None
    return read_claims(uri)
