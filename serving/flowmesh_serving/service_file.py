"""The list of services as a file, which ``fmesh serve`` writes and its router watches."""

from pathlib import Path

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.protocol.router_services import RouterServices, ServiceEntry


class ServiceFile:
    """Reads the file where it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed_ns = -1

    def read(self) -> RouterServices | None:
        """Returns the content; None where it is what was read before.

        Raises:
            FlowMeshError: it cannot be read; what it said before holds.
        """
        try:
            changed_ns = self._path.stat().st_mtime_ns
            if changed_ns == self._changed_ns:
                return None
            listed = decode(_decoder, self._path.read_bytes())
        except (OSError, msgspec.DecodeError) as e:
            raise FlowMeshError(
                f"the list of services cannot be read: {e}",
                where=str(self._path),
                remedy="start the service again with `fmesh serve`",
            ) from e
        self._changed_ns = changed_ns
        return listed


_decoder = msgspec.json.Decoder(RouterServices)


def write_services(path: Path, services: tuple[ServiceEntry, ...]) -> None:
    """Replaces the file, readable by its owner only."""
    text = msgspec.json.format(msgspec.json.encode(RouterServices(services))) + b"\n"
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_bytes(text)
    new.replace(path)
