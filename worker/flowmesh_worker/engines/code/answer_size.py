"""Computes how much memory MessagePack's decoded values will use, without decoding them.

Layout: https://github.com/msgpack/msgpack/blob/master/spec.md. The sizes are CPython's, rounded up.
"""

from mmap import mmap

Content = bytes | bytearray | mmap
_OBJECT_BYTES_MAX = 96
"""Upper limit for one byte of MessagePack: an object with an empty key and a null has three."""
_NUMBER_BYTES = 32
_TEXT_BYTES = 56
_WIDEST_CHARACTER_BYTES = 4
_LIST_BYTES = 56
_SLOT_BYTES = 8
_OBJECT_BYTES = 64
_OBJECT_TABLE_BYTES = 120
_ENTRY_BYTES = 48
_ENTRIES_IN_TABLE = 5
# Bytes of the number or of the length that follows, by the first byte.
_NUMBERS = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4}
_NUMBERS |= {0xD3: 8, 0xC0: 0, 0xC1: 0, 0xC2: 0, 0xC3: 0}
_TEXTS = {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4}
_EXTENSIONS = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_LISTS = {0xDC: 2, 0xDD: 4}
_MAPS = {0xDE: 2, 0xDF: 4}
_LONG_EXTENSIONS = (0xC7, 0xC8, 0xC9)
_WIDTHS = _TEXTS | _LISTS | _MAPS
_FIRST_MAP, _FIRST_LIST, _FIRST_TEXT, _FIRST_LONG, _FIRST_NEGATIVE = 0x80, 0x90, 0xA0, 0xC0, 0xE0


def decoded_bytes(data: Content, limit: int) -> int:
    """Returns the bytes that the decoded values will use; stops counting beyond the limit.

    Args:
        data: MessagePack; if it is malformed or ends early, the values before that count.
        limit: bytes.
    """
    if len(data) * _OBJECT_BYTES_MAX <= limit:
        return len(data) * _OBJECT_BYTES_MAX
    at = total = 0
    end = len(data)
    while at < end and total <= limit:
        size, at = _value(data, at)
        total += size
    return total


def _value(data: Content, at: int) -> tuple[int, int]:
    """Returns a value's size without the values in it, and the offset of the next value."""
    first = data[at]
    at += 1
    if first < _FIRST_MAP or first >= _FIRST_NEGATIVE:
        return _NUMBER_BYTES, at
    if first < _FIRST_LIST:
        return _map(first & 0x0F), at
    if first < _FIRST_TEXT:
        return _LIST_BYTES + _SLOT_BYTES * (first & 0x0F), at
    if first < _FIRST_LONG:
        return _text(data, at, first & 0x1F)
    return _long(data, at, first)


def _long(data: Content, at: int, first: int) -> tuple[int, int]:
    """Measures a value whose first byte gives the width of its number or length."""
    if first in _NUMBERS:
        return _NUMBER_BYTES, at + _NUMBERS[first]
    if first in _EXTENSIONS:
        return _TEXT_BYTES + _EXTENSIONS[first], at + 1 + _EXTENSIONS[first]
    width = _WIDTHS[first]
    count = int.from_bytes(data[at : at + width])
    at += width
    if first in _MAPS:
        return _map(count), at
    if first in _LISTS:
        return _LIST_BYTES + _SLOT_BYTES * count, at
    return _text(data, at + (first in _LONG_EXTENSIONS), count)


def _map(count: int) -> int:
    if not count:
        return _OBJECT_BYTES
    return _OBJECT_BYTES + _OBJECT_TABLE_BYTES + _ENTRY_BYTES * max(0, count - _ENTRIES_IN_TABLE)


def _text(data: Content, at: int, count: int) -> tuple[int, int]:
    plain = data[at : at + count].isascii()
    return _TEXT_BYTES + count * (1 if plain else _WIDEST_CHARACTER_BYTES), at + count
