"""The world of the machine's tests."""

import importlib.util
import sys
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("world", Path(__file__).parent / "world.py")
assert _spec is not None
assert _spec.loader is not None
world_module = importlib.util.module_from_spec(_spec)
sys.modules["world"] = world_module
_spec.loader.exec_module(world_module)


@pytest.fixture
def world():  # type: ignore[no-untyped-def] - the module is loaded above
    """A fabric without workers."""
    return world_module.World()
