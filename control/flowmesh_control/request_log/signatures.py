"""Signs and verifies documents as DSSE does, with Ed25519 keys derived from the master keys.

A signed document is its payload, whose last byte is a newline, and one line with the envelope
without the payload: ``{"payloadType":…,"signatures":[{"keyid":…,"sig":…}]}``. With the payload in
base64 as its field ``payload`` the line is a DSSE envelope (https://github.com/secure-systems-lab/dsse).
"""

import base64
import binascii
from collections.abc import Iterable

import msgspec

from flowmesh_api.v1.keys import PublicKey
from flowmesh_core.decoding import decode
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.sharing.key_ring import DerivedKeys, KeyRing

CONTEXT = "flowmesh.dev 2 signing"
KEY_BYTES = 32


class SignatureError(FlowMeshError):
    """A document that is not signed by one of the keys."""


class Signature(msgspec.Struct, frozen=True):
    """A signature of an envelope; ``keyid`` is the id of the master key."""

    keyid: str
    sig: str


class Envelope(msgspec.Struct, frozen=True, rename="camel"):
    """A DSSE envelope without its payload."""

    payload_type: str
    signatures: tuple[Signature, ...]


class Signer:
    """Signs with the newest key of a ring; the keys are made when they are first needed."""

    def __init__(self, ring: KeyRing) -> None:
        self._keys: DerivedKeys = ring.derive(CONTEXT)

    def public_keys(self) -> tuple[PublicKey, ...]:
        """Returns the public keys of the ring, the newest first."""
        found = self._keys.by_id.items()
        return tuple(PublicKey(key_id, _encoded(_public(seed))) for key_id, seed in found)

    def sign(self, payload: bytes, payload_type: str) -> bytes:
        """Returns the signed document of a payload that ends in a newline."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - 15 ms
            Ed25519PrivateKey,
        )

        private = Ed25519PrivateKey.from_private_bytes(self._keys.newest)
        signature = private.sign(pre_authentication_encoding(payload_type, payload))
        envelope = Envelope(payload_type, (Signature(self._keys.newest_id, _encoded(signature)),))
        return payload + msgspec.json.encode(envelope) + b"\n"


def verified_payload(document: bytes, payload_type: str, public_keys: Iterable[PublicKey]) -> bytes:
    """Returns the payload of a signed document.

    Args:
        document: as :meth:`Signer.sign` returns it.
        payload_type: the type that it must have.
        public_keys: those whose signatures count.

    Raises:
        SignatureError: it is cut off, changed, of another type, or signed by none of the keys.
    """
    end = document.rfind(b"\n", 0, len(document) - 1) + 1
    if not end or not document.endswith(b"\n"):
        raise SignatureError("it has no signature, or is cut off")
    payload, line = document[:end], document[end:]
    try:
        envelope = decode(_decoder, line)
    except msgspec.DecodeError as e:
        raise SignatureError("it has no signature, or is cut off") from e
    if envelope.payload_type != payload_type:
        raise SignatureError(f"it is signed as {envelope.payload_type[:80]!r}")
    covered, keys = pre_authentication_encoding(payload_type, payload), tuple(public_keys)
    known = {key.key_id for key in keys}
    for one in envelope.signatures:
        if any(_is_valid(one.sig, covered, k.key) for k in keys):
            return payload
    unknown = [one.keyid[:80] for one in envelope.signatures if one.keyid not in known]
    if unknown:
        raise SignatureError(f"it is signed with key {unknown[0]!r}, whose public key is not known")
    raise SignatureError("its signature is not valid")


def pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """Returns what DSSE signs (PAE)."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def decode_public_key(text: str) -> bytes:
    """Decodes a public key from base64.

    Raises:
        FlowMeshError: it is not 32 bytes in base64.
    """
    try:
        key = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise FlowMeshError(
            f"{text[:80]!r} is not a public key: expected {KEY_BYTES} bytes in base64",
            remedy="copy it from `fmesh keys list`",
        )
    return key


def _is_valid(signature: str, covered: bytes, public_key: str) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - 15 ms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PublicKey,
    )

    try:
        key = Ed25519PublicKey.from_public_bytes(decode_public_key(public_key))
        key.verify(base64.b64decode(signature, validate=True), covered)
    except (InvalidSignature, ValueError, FlowMeshError):
        return False
    return True


def _public(seed: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - 15 ms
        Ed25519PrivateKey,
    )

    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


_decoder = msgspec.json.Decoder(Envelope)
