"""What an attempt token says: which worker was given an attempt, and which scopes it may use.

The control plane verifies tokens (``attempt_tokens``). A worker has no key and need not verify: it
reads from the token that it was assigned where the attempt's inputs and outputs belong.
"""

import base64
import binascii

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.errors import FlowMeshError

VERSION = 2
MAC_BYTES = 16


class AttemptGrant(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a token says.

    A token of a prewarm entry or of a service's replica has no attempt: it only reads, so its write
    scope is empty, and its attempt id is empty or names the replica.

    Attributes:
        version: of this format.
        generation: of the result that the attempt would publish.
        incarnation: of the worker's process.
        issued_s: when it was assigned, in whole seconds since the epoch (UTC).
        write_scope: where its result is published.
        read_scopes: where its inputs may lie: those of the subscription that it was made from.
    """

    version: int
    attempt_id: str
    generation: int
    pool: str
    worker: str
    incarnation: str
    issued_s: int
    write_scope: str
    read_scopes: tuple[str, ...]

    @property
    def readable(self) -> tuple[str, ...]:
        """The scopes that the attempt may read, in this order: also what it wrote itself."""
        if not self.write_scope or self.write_scope in self.read_scopes:
            return self.read_scopes
        return (*self.read_scopes, self.write_scope)


def decode_grant(payload: bytes) -> AttemptGrant | None:
    """Returns what a token's payload says; None where it is of another version."""
    try:
        grant = decode(_decoder, payload)
    except msgspec.DecodeError:
        return None
    return grant if grant.version == VERSION else None


def read_grant(token: str) -> AttemptGrant:
    """Returns what a token says, without verifying it.

    Raises:
        FlowMeshError: it is not a token of this version.
    """
    try:
        data = base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        data = b""
    grant = decode_grant(data[: -MAC_BYTES - 1])
    if grant is None:
        raise FlowMeshError(
            "the assignment has no attempt token of this version",
            remedy="use workers and control plane of one release",
        )
    return grant


_decoder = msgspec.msgpack.Decoder(AttemptGrant)
