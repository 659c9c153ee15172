"""Keys of lineage records. The key of a run's record says which digests the record may hold.

::

    lineage/runs/<uid>/<n>.<filter>     derivations of a run, a few hundred
    lineage/by-output/<2 hex>/<uid>     what a run made from very many inputs, by the beginning of
                                        its outputs; earlier releases wrote all like this
    lineage/by-input/<2 hex>/<uid>      the same by the beginning of its inputs

So most runs have one record, and a query reads few: it lists the keys, a thousand a request, and
reads the records whose filter matches. The filter is a Bloom filter over the first eight
hexadecimal digits of each digest, six bits a character.
"""

from collections.abc import Iterable, Iterator

from flowmesh_core.units import Digest

RUNS = "lineage/runs/"
BY_OUTPUT = "lineage/by-output/"
BY_INPUT = "lineage/by-input/"
PREFIX_MIN = 8
"""Of a digest at least so many characters are to be given."""
DIGESTS_MAX = 400
"""So many the filter of one key holds: of the other keys less than one in a hundred match."""

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_VALUES = {character: value for value, character in enumerate(_ALPHABET)}
_CHARACTER_BITS = 6
_CHARACTERS_A_DIGEST = 4
_CHARACTERS = (16, 680)
"""Least and most. A key of S3 has at most 1,024 bytes, a segment of one of ours 200."""
_SEGMENT = 200
_FACTORS = (
    0x6A09E667, 0xBB67AE85, 0x3C6EF373, 0xA54FF53B, 0x510E527F, 0x9B05688D, 0x1F83D9AB, 0x5BE0CD19,
)  # fmt: skip
"""Odd, and else without meaning: of the square roots of the first primes. A stored format: fixed.
"""


def run_key(uid: str, number: int, digests: Iterable[Digest]) -> str:
    """The key of a run's record with this number, whose derivations touch these digests."""
    beginnings = {digest[:PREFIX_MIN] for digest in digests}
    least, most = _CHARACTERS
    length = min(max(least, _CHARACTERS_A_DIGEST * len(beginnings)), most)
    values = [0] * length
    for beginning in beginnings:
        for bit in _bits(int(beginning, 16), length * _CHARACTER_BITS):
            values[bit // _CHARACTER_BITS] |= 1 << bit % _CHARACTER_BITS
    text = f"{number}." + "".join(map(_ALPHABET.__getitem__, values))
    segments = (text[at : at + _SEGMENT] for at in range(0, len(text), _SEGMENT))
    return f"{RUNS}{uid}/{'/'.join(segments)}"


def matching(keys: Iterable[str], digests: Iterable[str]) -> list[str]:
    """The keys of records that may hold one of these digests, or of these beginnings of digests."""
    wanted = [int(digest[:PREFIX_MIN], 16) for digest in digests]
    found = []
    for key in keys:
        text = key[len(RUNS) :].partition("/")[2].partition(".")[2].replace("/", "")
        if any(_holds(text, beginning) for beginning in wanted):
            found.append(key)
    return found


def _holds(text: str, beginning: int) -> bool:
    if not text:  # a stray key
        return False
    for bit in _bits(beginning, len(text) * _CHARACTER_BITS):
        value = _VALUES.get(text[bit // _CHARACTER_BITS], 0)
        if not value >> bit % _CHARACTER_BITS & 1:
            return False
    return True


def _bits(beginning: int, size: int) -> Iterator[int]:
    """The bits of a digest in a filter of so many bits (multiply-shift hashing)."""
    for factor in _FACTORS:
        yield (beginning * factor & 0xFFFFFFFF) * size >> 32
