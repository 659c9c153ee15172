"""The world of the machine's tests."""

import pytest
from tests.flowmesh_core.machine.world import World


@pytest.fixture
def world() -> World:
    """A fabric without workers."""
    return World()
