"""Values between hubs of several machines: over their ports, and by relay where there are none."""

from pathlib import Path

import pytest
from tests.flowmesh_serving.machines import SeveralMachines
from tests.flowmesh_serving.stack import until
from tests.flowmesh_serving.stage_stack import stage_stack
from tests.flowmesh_serving.test_peer_links import SPEC, WORKERS, links, replies

pytestmark = pytest.mark.nightly


async def test_values_pass_from_machine_to_machine_and_more_than_the_router_takes(
    tmp_path: Path,
) -> None:
    async with stage_stack(tmp_path, SPEC, WORKERS, SeveralMachines(tmp_path)) as stack:
        await replies(stack, 1)  # by relay, while the hubs connect
        (link,) = links(stack)._links.values()
        await until(lambda: link._is_ready)
        relayed = await stack.until_passed("relay")
        await replies(stack, 1 << 22)
        await replies(stack, *[20_000] * 10, 1)
        assert await stack.until_passed("peer", (16 << 20) + 10 * 80_000)
        assert await stack.until_passed("relay", 0) == relayed
        assert list(links(stack)._links.values()) == [link]


async def test_of_a_pool_without_peers_values_pass_through_the_router(tmp_path: Path) -> None:
    machines = SeveralMachines(tmp_path, without_port=["w2"])
    async with stage_stack(tmp_path, SPEC, WORKERS, machines) as stack:
        await replies(stack, 20_000, 1)
        assert await stack.until_passed("relay", 80_000)
        assert await stack.until_passed("peer", 0) == 0
        assert not links(stack)._links
