"""The messages between a worker and the container of users' code, and how they are framed."""

import asyncio

import msgspec

from flowmesh_worker.engines.code.limits import ProcessEnd, SandboxRequest
from flowmesh_worker.engines.code.sandbox_level import CodeSandbox

CHUNK_BYTES = 1 << 16
_LENGTH_BYTES = 4
FRAME_BYTES_MAX = 2 * CHUNK_BYTES


class Describe(msgspec.Struct, frozen=True, tag="Describe"):
    """A worker begins and asks what the container is."""


class Described(msgspec.Struct, frozen=True, tag="Described"):
    """What the container is; ``leaving`` if it ends now and its successor is to be asked."""

    sandbox: CodeSandbox
    leaving: bool = False


class Started(msgspec.Struct, frozen=True, tag="Started"):
    """The call begins; its timeout counts from now on."""


class Printed(msgspec.Struct, frozen=True, tag="Printed"):
    """Output that the code printed."""

    data: bytes


class Answered(msgspec.Struct, frozen=True, tag="Answered"):
    """The next bytes of the encoded ``SandboxResult``."""

    data: bytes


class Ended(msgspec.Struct, frozen=True, tag="Ended"):
    """The process has ended."""

    end: ProcessEnd


class OtherTenant(msgspec.Struct, frozen=True, tag="OtherTenant"):
    """The call is refused: the container serves another tenant."""


frames = msgspec.msgpack.Decoder(Started | Printed | Answered | Ended | Described | OtherTenant)
requests = msgspec.msgpack.Decoder(SandboxRequest | Describe)


def write_frame(writer: asyncio.StreamWriter, frame: msgspec.Struct) -> None:
    """Appends a frame to what is written."""
    data = msgspec.msgpack.encode(frame)
    writer.write(len(data).to_bytes(_LENGTH_BYTES) + data)


async def read_frame(reader: asyncio.StreamReader, bytes_max: int | None = None) -> bytes:
    """Returns the next frame.

    Raises:
        ConnectionResetError: it is longer than ``bytes_max``.
        asyncio.IncompleteReadError: the connection ended.
    """
    length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES))
    if bytes_max is not None and length > bytes_max:
        raise ConnectionResetError("the container of the user's code wrote an invalid frame")
    return await reader.readexactly(length)
