"""Malformed bytes are one error, whatever is wrong with them."""

import msgspec
import pytest

from flowmesh_core.dataset.schema import Schema
from flowmesh_core.decoding import decode

_json = msgspec.json.Decoder(dict[str, str])
_msgpack = msgspec.msgpack.Decoder(dict[str, str])
_any = msgspec.json.Decoder()
_schema = msgspec.json.Decoder(Schema)


@pytest.mark.parametrize(
    ("decoder", "data", "reason"),
    [
        (_json, b'{"a": "b', "truncated"),
        (_json, b'{"a": 1}', "Expected `str`"),
        (_json, b'{"a": "\xff"}', "not UTF-8"),
        (_json, b'{"\xff": "a"}', "not UTF-8"),
        (_msgpack, b"\x81\xa1a\xa1\xff", "not UTF-8"),
        (_msgpack, b"\x81\xa1\xff\xa1a", "not UTF-8"),
        (_any, b"[" * 100_000, "nested too deeply"),
        (
            _schema,
            b'{"columns": [{"name": "b", "type": "int"}, {"name": "a", "type": "int"}]}',
            "in order of name",
        ),
    ],
)
def test_malformed_bytes_raise_a_decode_error_with_the_reason(
    decoder: msgspec.json.Decoder[object], data: bytes, reason: str
) -> None:
    with pytest.raises(msgspec.DecodeError, match=reason):
        decode(decoder, data)


def test_valid_bytes_are_decoded() -> None:
    assert decode(_json, b'{"a": "b"}') == {"a": "b"}
    assert decode(_msgpack, bytearray(b"\x81\xa1a\xa1b")) == {"a": "b"}
