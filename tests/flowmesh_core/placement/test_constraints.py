"""Hard constraints of a signature."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed
from tests.flowmesh_core.placement.builders import signature, worker

from flowmesh_core.placement.constraints import unmet


@pytest.mark.parametrize(("memory_mib", "fits"), [(1000, True), (1500, False)])
def test_memory_is_required_of_each_device_that_a_host_spans(memory_mib: int, fits: bool) -> None:
    two = changed(worker("w", memory_mib=1000).shape, devices=2)
    needed = replace(signature("m", memory_mib=memory_mib).requirement, tensor_parallel=2)
    assert (unmet(needed, two) is None) is fits
