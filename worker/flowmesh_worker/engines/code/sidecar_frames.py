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


class OpenResident(msgspec.Struct, frozen=True, tag="OpenResident"):
    """A component host asks for a resident sandbox, which lives as long as this connection.

    Attributes:
        task: its limits and tenant; it has no code.
    """

    task: SandboxRequest


class ResidentOpened(msgspec.Struct, frozen=True, tag="ResidentOpened"):
    """The container waits for the connection that it gives to the sandbox, with this key."""

    key: str


class AttachResident(msgspec.Struct, frozen=True, tag="AttachResident"):
    """This connection is for the sandbox of a key; after ``Started`` it is the sandbox's own."""

    key: str


class Started(msgspec.Struct, frozen=True, tag="Started"):
    """The call, or the resident sandbox, begins; a call's timeout counts from now on."""


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


Request = SandboxRequest | Describe | OpenResident | AttachResident
Frame = Started | Printed | Answered | Ended | Described | OtherTenant | ResidentOpened
frames = msgspec.msgpack.Decoder(Frame)
requests = msgspec.msgpack.Decoder(Request)


def encoded_frame(frame: msgspec.Struct) -> bytes:
    """Returns a frame's bytes."""
    data = msgspec.msgpack.encode(frame)
    return len(data).to_bytes(_LENGTH_BYTES) + data


def write_frame(writer: asyncio.StreamWriter, frame: msgspec.Struct) -> None:
    """Appends a frame to what is written."""
    writer.write(encoded_frame(frame))


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
