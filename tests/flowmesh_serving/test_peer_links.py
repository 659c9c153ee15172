"""Values between workers of one machine: directly, and again by another way where that breaks."""

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_serving.stack import until
from tests.flowmesh_serving.stage_stack import StageStack, stage_stack, together
from tests.flowmesh_serving.test_shared_values import chain

from flowmesh_core.protocol.serving import RunStages
from flowmesh_serving.links.hub_link import HubLink
from flowmesh_worker.ipc.descriptor_socket import DescriptorSocket
from flowmesh_worker.serving import early_values, peer_link, peer_source
from flowmesh_worker.serving.peer_links import PeerLinks

pytestmark = pytest.mark.slow
SPEC = chain("make", "total", "rows", ".rows", resources={"memory": "256Mi"})
WORKERS = {"w1": ["one"], "w2": ["two"]}


async def replies(stack: StageStack, *sizes: int) -> None:
    """Asks for arrays of these sizes, and checks the replies."""
    found = await together(*(stack.ask({"n": n}) for n in sizes))
    assert [(status, body["out"]["first"]) for status, body in found] == [
        (200, n - 1) for n in sizes
    ]


def links(stack: StageStack) -> PeerLinks:
    """Returns the links of the hub that sends."""
    return stack.hubs["w1"]._stages.peers


async def test_values_pass_directly_and_more_than_the_router_takes(tmp_path: Path) -> None:
    async with stage_stack(tmp_path, SPEC, WORKERS) as stack:
        assert stat.S_IMODE((tmp_path / "peers").stat().st_mode) == 0o700
        for name in os.listdir(tmp_path / "peers"):
            assert stat.S_IMODE((tmp_path / "peers" / name).stat().st_mode) == 0o600
        await replies(stack, 1 << 22)
        await replies(stack, *[20_000] * 10, 1)
        assert len(links(stack)._links) == 1
        assert await stack.until_passed("peer", (16 << 20) + 10 * 80_000)
        assert await stack.until_passed("relay", 0) == 0
        await until(lambda: not any(hub._stages._value_bytes for hub in stack.hubs.values()))
    assert os.listdir(tmp_path / "peers") == []


async def test_a_damaged_value_is_refused_and_its_request_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DescriptorSocket, "send", lambda *_: 0)  # so that bytes travel
    right, checked = peer_link.checksum_of, []

    def checksum_of(data: bytes) -> int:
        checked.append(len(data))
        return right(data) ^ (len(checked) == 1)

    for module in (peer_link, peer_source):
        monkeypatch.setattr(module, "checksum_of", checksum_of)
    async with stage_stack(tmp_path, SPEC, WORKERS) as stack:
        await replies(stack, 20_000)
        assert len(checked) == 4  # sent and read, twice
        assert all(size > 80_000 for size in checked)


async def test_a_value_that_comes_before_its_request_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, late = HubLink.answer, []

    def slow_answer(link: HubLink, message: Any) -> None:
        if link.worker == "w2" and isinstance(message, RunStages):
            late.append(lambda: answer(link, message))
        else:
            answer(link, message)

    monkeypatch.setattr(HubLink, "answer", slow_answer)
    async with stage_stack(tmp_path, SPEC, WORKERS) as stack:
        asking = asyncio.create_task(stack.ask({"n": 20_000}))
        early = stack.hubs["w2"]._stages._early
        await until(lambda: early.size > 80_000)
        late.pop()()
        assert (await asking)[0] == 200
        assert early.size == 0


async def test_a_value_whose_request_does_not_come_is_dropped_and_its_request_routed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_values, "EARLY_S", 0.05)
    answer, lost = HubLink.answer, []

    def first_is_lost(link: HubLink, message: Any) -> None:
        if link.worker == "w2" and isinstance(message, RunStages) and not lost:
            lost.append(message)
        else:
            answer(link, message)

    monkeypatch.setattr(HubLink, "answer", first_is_lost)
    async with stage_stack(tmp_path, SPEC, WORKERS) as stack:
        await replies(stack, 20_000)
        assert (len(lost), stack.hubs["w2"]._stages._early.size) == (1, 0)


async def test_a_link_is_closed_when_idle_and_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_link, "IDLE_S", 0.2)
    async with stage_stack(tmp_path, SPEC, WORKERS) as stack:
        await replies(stack, 20_000)
        await until(lambda: not links(stack)._links)
        await replies(stack, 20_000)


async def test_without_its_peers_socket_a_hub_gets_values_through_the_router(
    tmp_path: Path,
) -> None:
    async with stage_stack(tmp_path, SPEC, WORKERS) as stack:
        for name in os.listdir(tmp_path / "peers"):
            (tmp_path / "peers" / name).unlink()
        await replies(stack, 20_000, 1)
        assert await stack.until_passed("relay", 80_000)


async def test_a_request_whose_link_broke_is_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[int] = []
    add = peer_source.PeerSource._add

    def breaks_once(source: Any, *arguments: Any) -> None:
        if broken:
            add(source, *arguments)
        else:
            broken.append(1)
            source.channel.abort()

    monkeypatch.setattr(peer_source.PeerSource, "_add", breaks_once)
    async with stage_stack(tmp_path, SPEC, WORKERS) as stack:
        await replies(stack, 20_000)
        assert broken
