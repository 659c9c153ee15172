"""Link certificates: what lets the hub of a worker take calls from routers on other machines.

The control plane signs one for each worker that has replicas and sends it with the addresses of the
routers. A hub shows it when it connects; a router then accepts replicas of the namespaces that it
names and no others. It is valid across epochs, since its key follows from the master key. This
module has the form; ``control.auth.link_signer`` signs, ``serving.links.link_verifier`` verifies.
"""

import base64
import binascii
from typing import NamedTuple

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.errors import ProtocolError

LINK_KEYS = "flowmesh link certificates v1"
"""The purpose under which their keys are derived from the master keys."""
VALID_S = 3600.0
CERTIFICATE_CHARS_MAX = 32 << 10
_PARTS = 3


class LinkClaims(msgspec.Struct, frozen=True, array_like=True):
    """What a certificate says.

    Attributes:
        worker: the worker's name.
        incarnation: the process of the worker that it was issued to.
        pool: the worker's pool.
        group: the routers that accept it.
        namespaces: those of whose services the worker was given replicas.
        expires_s: Unix time.
    """

    worker: str
    incarnation: str
    pool: str
    group: str
    namespaces: tuple[str, ...]
    expires_s: float


class SignedLink(NamedTuple):
    """A certificate that was read and not verified: its claims are not to be believed yet."""

    claims: LinkClaims
    key_id: str
    signed: bytes
    signature: bytes


def signed_bytes(claims: LinkClaims) -> bytes:
    """Returns the bytes that are signed."""
    return _encoder.encode(claims)


def certificate_text(key_id: str, signed: bytes, signature: bytes) -> str:
    """Returns a certificate's text."""
    return ".".join((key_id, _text(signed), _text(signature)))


def read_certificate(text: str) -> SignedLink:
    """Reads a certificate without verifying it.

    Raises:
        ProtocolError: it has another form.
    """
    parts = text.split(".")
    if len(parts) != _PARTS or len(text) > CERTIFICATE_CHARS_MAX:
        raise ProtocolError("the link certificate has another form than KEY.CLAIMS.SIGNATURE")
    try:
        signed, signature = (base64.b64decode(p, b"-_", validate=True) for p in parts[1:])
        claims = decode(_decoder, signed)
    except (binascii.Error, ValueError, msgspec.DecodeError) as e:
        raise ProtocolError(f"the link certificate cannot be read: {e}") from e
    return SignedLink(claims, parts[0], signed, signature)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(LinkClaims)
