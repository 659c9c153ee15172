"""Encodes results of components: as JSON, or packed where they have arrays.

Used by :mod:`component_code`, in the process of the code.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from flowmesh_core.protocol.serving import VALUE_BYTES_MAX
from flowmesh_worker.engines.code.packed_arrays import is_array, pack
from flowmesh_worker.ipc.passed_values import StageBytes
from flowmesh_worker.ipc.shared_value import SHARED_BYTES_MAX, SHARED_BYTES_MIN, SharedValue

ERROR_CHARS_MAX = 4_000


class WrongValueError(Exception):
    """A result cannot leave the host."""


class ValueFiles(Protocol):
    """The files of a process that large results are in."""

    @property
    def is_used(self) -> bool:
        """Whether values were made since the last :meth:`prepare`."""
        ...

    def value_of(self, parts: Sequence[bytes | memoryview]) -> SharedValue:
        """Returns a value with these bytes, one part after the other.

        Raises:
            OSError: there is no memory for it, or no file.
        """
        ...

    def prepare(self) -> None:
        """Prepares memory for as many values as were made since the last time."""
        ...


def error_line(error: BaseException) -> str:
    """Returns an error without its traceback."""
    text = str(error)[:ERROR_CHARS_MAX]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def encode_json(value: Any) -> bytes:
    """Returns a result as JSON, for the reply, an engine or a text."""
    try:
        body = msgspec.json.encode(value)
    except Exception as error:
        raise WrongValueError(f"the result is not JSON: {error_line(error)}") from error
    if len(body) > VALUE_BYTES_MAX:
        raise WrongValueError(f"the result has {len(body)} bytes, of at most {VALUE_BYTES_MAX}")
    return body


def encode_value(value: Any, files: ValueFiles) -> StageBytes:
    """Returns a result for a component of another host: JSON, or packed where it has arrays."""
    try:
        parts = pack(value) if is_array(value) else _json_or_packed(value)
    except Exception as error:
        text = f"the result is neither JSON nor arrays: {error_line(error)}"
        raise WrongValueError(text) from error
    size = sum(map(len, parts))
    if size > SHARED_BYTES_MAX:
        raise WrongValueError(f"the result has {size} bytes, of at most {SHARED_BYTES_MAX}")
    if size >= SHARED_BYTES_MIN:
        try:
            return files.value_of(parts)
        except OSError as error:
            if size > VALUE_BYTES_MAX:
                raise WrongValueError(f"the result has no place in memory: {error}") from error
    return b"".join(parts)


def _json_or_packed(value: Any) -> list[bytes | memoryview]:
    def refuse(found: Any) -> None:
        raise (
            _ArrayFoundError
            if is_array(found)
            else TypeError(f"{type(found).__name__} is not supported")
        )

    try:
        return [msgspec.json.encode(value, enc_hook=refuse)]
    except _ArrayFoundError:
        return pack(value)


class _ArrayFoundError(Exception):
    """A result is not JSON, since it contains an array."""
