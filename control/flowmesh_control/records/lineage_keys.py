"""Keys of lineage records; the key of a run's record says which digests it may contain.

::

    lineage/runs/<uid>/<n>.<filter>     derivations of a run, a few hundred
    lineage/by-output/<2 hex>/<uid>     derivations with very many inputs, by the first digits of
                                        their outputs; earlier releases wrote all like this
    lineage/by-input/<2 hex>/<uid>      the same by the first digits of their inputs

So most runs have one record, and a query reads few: it lists the keys, a thousand a request, and
reads the records whose filter matches. The filter is a Bloom filter over the first eight
hexadecimal digits of each digest, six bits a character.
"""

from collections.abc import Iterable, Iterator

RUNS = "lineage/runs/"
BY_OUTPUT = "lineage/by-output/"
BY_INPUT = "lineage/by-input/"
PREFIX_MIN = 8
"""The least digits of a digest in a query."""
DIGESTS_MAX = 400
"""The most digests of one filter: then less than one in a hundred other digests match it."""

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
"""Odd numbers without meaning, from the square roots of the first primes. They are part of the
stored format and must not change.
"""


def run_key(uid: str, number: int, digests: Iterable[str]) -> str:
    """Returns the key of a run's record with this number and these digests."""
    beginnings = {digest[:PREFIX_MIN] for digest in digests}
    least, most = _CHARACTERS
    length = min(max(least, _CHARACTERS_A_DIGEST * len(beginnings)), most)
    values, size = [0] * length, length * _CHARACTER_BITS
    for beginning in beginnings:
        digits = int(beginning, 16)
        for factor in _FACTORS:  # as _bits, without a generator: eight steps for each digest
            bit = (digits * factor & 0xFFFFFFFF) * size >> 32
            values[bit // _CHARACTER_BITS] |= 1 << bit % _CHARACTER_BITS
    text = f"{number}." + "".join(map(_ALPHABET.__getitem__, values))
    segments = (text[at : at + _SEGMENT] for at in range(0, len(text), _SEGMENT))
    return f"{RUNS}{uid}/{'/'.join(segments)}"


def matching(keys: Iterable[str], digests: Iterable[str]) -> list[str]:
    """Returns the keys of records that may contain one of these digests or prefixes."""
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
    """Yields the bits of a digest in a filter of ``size`` bits (multiply-shift hashing)."""
    for factor in _FACTORS:
        yield (beginning * factor & 0xFFFFFFFF) * size >> 32
