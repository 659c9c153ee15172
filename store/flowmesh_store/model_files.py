"""Checks that the files of a model or adapter are data: nothing that runs code when it is loaded.

Used by the API for uploads, and by the worker for imports.
"""

import math
from pathlib import Path, PurePosixPath

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.errors import FlowMeshError

_SAFE_ENDINGS = frozenset({".safetensors", ".json", ".jinja", ".txt", ".model", ".md"})
_SAFE_NAMES = frozenset({"LICENSE", "NOTICE", "README"})
_PICKLES = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".h5", ".msgpack"})
UNSAFE_REMEDY = (
    "keep safetensors, JSON and tokenizer files only; weights in .bin or .pt are"
    " pickles: convert them to safetensors"
)
_WEIGHTS = ".safetensors"
_LENGTH_BYTES = 8
HEADER_BYTES_MAX = 8 << 20
"""Of one file's header; one with 20,000 tensors has 2.5 MB."""
_DAMAGED_REMEDY = "write the file again with the safetensors library"
_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
}


class _Tensor(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


_header_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_tensor_decoder = msgspec.json.Decoder(_Tensor)


def is_safe(name: str) -> bool:
    """Whether a file of this name contains only data."""
    path = PurePosixPath(name)
    return path.suffix in _SAFE_ENDINGS or path.name in _SAFE_NAMES


def is_pickle(name: str) -> bool:
    """Whether a file of this name has weights in a format that is refused."""
    return PurePosixPath(name).suffix in _PICKLES


def require_data_only(directory: Path) -> None:
    """Refuses a directory with a file that is not data, or weights that are damaged; blocks.

    Raises:
        FlowMeshError: names the file and the remedy.
    """
    for file in sorted(f for f in directory.rglob("*") if not f.is_dir()):
        name = file.relative_to(directory).as_posix()
        if not is_safe(name):
            raise FlowMeshError(
                "it is not a file that a model may contain", where=name, remedy=UNSAFE_REMEDY
            )
        if name.endswith(_WEIGHTS):
            require_safetensors(file, name)


def require_safetensors(file: Path, name: str) -> None:
    """Refuses a file whose header is not that of safetensors, or does not fit its content.

    Raises:
        FlowMeshError: says what is wrong.
    """
    try:
        why = _damage(file)
    except msgspec.DecodeError as e:
        why = f"its header cannot be read: {e}"
    if why:
        raise FlowMeshError(
            f"it is not a safetensors file: {why}", where=name, remedy=_DAMAGED_REMEDY
        )


def _damage(file: Path) -> str:
    """Returns what is wrong with a file; empty if nothing is."""
    size = file.stat().st_size
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(_LENGTH_BYTES), "little")
        content = size - _LENGTH_BYTES - length
        if content < 0:
            return "it ends within its header"
        if length > HEADER_BYTES_MAX:
            return f"its header is larger than {HEADER_BYTES_MAX:,} bytes"
        header = decode(_header_decoder, opened.read(length))
    header.pop("__metadata__", None)
    tensors = {name: decode(_tensor_decoder, raw) for name, raw in header.items()}
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].data_offsets):
        first, last = tensor.data_offsets
        if first != end or last < first:
            return f"tensor {name[:80]!r} does not begin where the one before ends"
        if min(tensor.shape, default=0) < 0:
            return f"tensor {name[:80]!r} has a negative size"
        bits = _BITS.get(tensor.dtype)
        if bits is not None and math.prod(tensor.shape) * bits != 8 * (last - first):
            return f"tensor {name[:80]!r} has another size than its shape"
        end = last
    return "" if end == content else f"its tensors have {end:,} bytes, its content {content:,}"
