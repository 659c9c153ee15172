"""Hubs in network namespaces of their own: by a peer link where they reach each other, else not."""

import os
from pathlib import Path

import pytest
from tests.flowmesh_serving.network_namespaces import MachinesOfNetwork, network
from tests.flowmesh_serving.stage_stack import stage_stack
from tests.flowmesh_serving.test_peer_links import SPEC, WORKERS, replies

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to create network namespaces"),
]


async def test_a_value_passes_between_two_machines_by_a_peer_link(tmp_path: Path) -> None:
    with network(*WORKERS) as machines:
        where = MachinesOfNetwork(tmp_path, machines)
        async with stage_stack(tmp_path, SPEC, WORKERS, where) as stack:
            await replies(stack, 1)  # by relay, while the hubs connect
            await replies(stack, 1 << 22)  # more than the router takes: waits for the link
            await replies(stack, 20_000)
            assert await stack.until_passed("peer", (16 << 20) + 80_000)
            assert await stack.until_passed("relay") < 80_000


async def test_behind_nat_all_values_pass_through_the_router(tmp_path: Path) -> None:
    with network(*WORKERS, is_nat=True) as machines:
        where = MachinesOfNetwork(tmp_path, machines)
        async with stage_stack(tmp_path, SPEC, WORKERS, where) as stack:
            await replies(stack, 20_000, 1)
            await replies(stack, 20_000)
            assert await stack.until_passed("relay", 160_000)
            assert await stack.until_passed("peer", 0) == 0
