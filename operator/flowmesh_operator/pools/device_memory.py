"""Memory of devices by product, for pools that have no worker yet to ask.

To add a device, add a row: what the management library reports as the total, in MiB.
"""

import re

SMALLEST_MIB = 15_360
"""Taken for a product that nobody knows: a workflow that needs more says so in the pool."""

_MIB = {
    "b200": 183_359,
    "h200": 143_771,
    "h100-nvl": 95_830,
    "h100": 81_559,
    "a100": 40_960,
    "l40s": 46_068,
    "a10": 23_028,
    "l4": 23_034,
    "4090": 24_564,
    "a6000": 49_140,
    "t4": SMALLEST_MIB,
}
_BY_LENGTH = sorted(_MIB, key=len, reverse=True)
_IN_NAME = re.compile(r"(\d+)gb")
_REPORTED = 0.995
"""Of the gibibytes that a product's name says, the share that is reported."""


def device_memory_mib(product: str) -> int:
    """MiB of one device of a product such as ``NVIDIA-H100-80GB-HBM3``; a low guess if unknown."""
    name = product.lower()
    if said := _IN_NAME.search(name):
        return int(int(said[1]) * 1024 * _REPORTED)
    return next((_MIB[known] for known in _BY_LENGTH if known in name), SMALLEST_MIB)
