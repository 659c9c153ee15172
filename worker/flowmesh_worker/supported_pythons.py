"""The versions of Python that workers support; ``fmesh run`` and the worker warn of others.

The base install sets no limit: this one comes from the libraries that models and training need.
"""

import sys

OLDEST, NEWEST = (3, 11), (3, 13)
"""Every library of the extras ``worker-cpu`` and ``worker-gpu`` has a wheel for these."""


def unsupported(version: tuple[int, int] = sys.version_info[:2]) -> str:
    """Returns a warning if the model libraries do not support this Python, else "".

    Args:
        version: major and minor.
    """
    if OLDEST <= version <= NEWEST:
        return ""
    return (
        f"this is Python {_text(version)}: the libraries of the worker extras support"
        f" {_text(OLDEST)} to {_text(NEWEST)}; engines that need them may be missing here"
    )


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
