"""Device memory by product, for pools from which no worker has connected yet.

To add a device, add a row with the total that the management library reports, in MiB.
"""

import re

SMALLEST_MIB = 15_360
"""Assumed for an unknown product; the pool's ``devices.memory`` overrides it."""

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
_REPORTED_SHARE = 0.995
"""The share of the GiB in a product's name that the library reports."""


def device_memory_mib(product: str) -> int:
    """Returns the MiB of one device, such as ``NVIDIA-H100-80GB-HBM3``; a low guess if unknown."""
    return known_memory_mib(product) or SMALLEST_MIB


def known_memory_mib(product: str) -> int:
    """Returns the MiB of one device of a known product; 0 for an unknown one."""
    name = product.lower()
    if gibibytes := _IN_NAME.search(name):
        return int(int(gibibytes[1]) * 1024 * _REPORTED_SHARE)
    return next((_MIB[known] for known in _BY_LENGTH if known in name), 0)
