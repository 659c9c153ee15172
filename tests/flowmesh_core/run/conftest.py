"""The world of the machine's tests."""

import pytest
from tests.flowmesh_core.run.world import World


@pytest.fixture
def world() -> World:
    """A fabric without workers."""
    return World()
