"""The values of a request's stages, as a hub has them."""

from typing import Any

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_worker.ipc.passed_values import StageBytes, size_of
from flowmesh_worker.serving.instance_link import InstanceLink

_json = msgspec.json.Decoder()
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class StageData:
    """One value: its bytes, or where a host keeps it, or both.

    Attributes:
        body: JSON; empty where only a host has it, or only components read it.
        packed: for components of other hosts; empty where ``body`` is the same.
        key: under which the host keeps it; empty where it does not.
        instance: that host.
    """

    __slots__ = ("_decoded", "_fields", "_is_decoded", "body", "instance", "key", "packed")

    def __init__(
        self,
        body: bytes,
        key: str = "",
        instance: InstanceLink | None = None,
        packed: StageBytes = b"",
    ) -> None:
        self.body = body
        self.packed = packed
        self.key = key
        self.instance = instance
        self._decoded: Any = None
        self._is_decoded = False
        self._fields: dict[str, msgspec.Raw] | None = None

    @property
    def size(self) -> int:
        """The bytes that it takes here."""
        return len(self.body) + size_of(self.packed)

    def decoded(self) -> Any:
        """Returns the value; decodes it once."""
        if not self._is_decoded:
            self._decoded = decode(_json, self.body)
            self._is_decoded = True
        return self._decoded

    def field(self, name: str) -> msgspec.Raw | None:
        """Returns a field as it is in the JSON; None where the value has no such field."""
        if self._fields is None:
            try:
                self._fields = decode(_fields, self.body)
            except msgspec.DecodeError:  # :meth:`decoded` says what is wrong
                self._fields = {}
        return self._fields.get(name)
