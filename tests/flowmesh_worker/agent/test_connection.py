"""The protocol to the letter: reconnecting, epochs, acknowledgement, refusal."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import REFUSAL_HEADER, Refused
from flowmesh_worker.agent.connection import PermanentlyRefusedError

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import Gateway, World


async def break_off(gateway: "Gateway") -> None:
    hellos = len(gateway.hellos)
    assert gateway.socket is not None
    await gateway.socket.close()
    await gateway.until(lambda: len(gateway.hellos) > hellos)


async def test_hello_describes_the_worker(world: "World") -> None:
    await world.worker(labels={"rack": "7"}, pool="p", price_nanousd_per_hour=5)
    hello = world.gateway.hellos[0]
    assert hello.shape.engines["test.noop"] == (1, 1, 0)
    assert hello.shape.device_class == "cpu"
    assert hello.shape.labels == {"rack": "7"}
    assert hello.shape.price_nanousd_per_hour == 5


async def test_after_a_disconnection_the_full_state_is_reported_again_and_work_continues(
    world: "World",
) -> None:
    await world.worker()
    a = world.assignment("test.sleep", params={"seconds": 1.0, "value": 3})
    await world.gateway.assign(a)
    await world.gateway.phase(a.attempt_id, "running")
    await break_off(world.gateway)
    hello = world.gateway.hellos[-1]
    assert [p.attempt_id for p in hello.attempts] == [a.attempt_id]
    assert [lane.state for lane in hello.instances] == ["ready"]
    assert hello.incarnation == world.gateway.hellos[0].incarnation
    assert (await world.gateway.end(a.attempt_id)).outputs["metrics"].value == {"value": 3}


async def test_an_end_is_retained_until_it_is_acknowledged(world: "World") -> None:
    world.gateway.acknowledging = False
    await world.worker()
    a = world.assignment("test.noop")
    await world.gateway.do(a)
    await break_off(world.gateway)
    assert [e.attempt_id for e in world.gateway.hellos[-1].ended] == [a.attempt_id]
    await world.gateway.desire(acknowledged=(a.attempt_id,))
    await world.gateway.do(world.assignment("test.noop"))
    await world.gateway.desire(acknowledged=tuple(world.gateway.ends))
    await world.gateway.do(world.assignment("test.noop", params={"value": 2}))
    await world.gateway.desire(acknowledged=tuple(world.gateway.ends))
    await break_off(world.gateway)
    await break_off(world.gateway)
    assert a.attempt_id not in [e.attempt_id for e in world.gateway.hellos[-1].ended]


async def test_attempts_that_a_new_leader_does_not_keep_are_stopped(world: "World") -> None:
    await world.worker()
    kept, dropped = (world.assignment("test.sleep", params={"seconds": 60}) for _ in range(2))
    await world.gateway.assign(kept, dropped)
    for a in (kept, dropped):
        await world.gateway.phase(a.attempt_id, "running")
    world.gateway.keep = lambda hello: (kept.attempt_id,)
    world.gateway.epoch = 2
    await break_off(world.gateway)
    end = await world.gateway.end(dropped.attempt_id)
    assert end.failure is not None
    assert end.failure.kind == FailureKind.CANCELLED
    assert kept.attempt_id not in world.gateway.ends


async def test_a_lower_epoch_is_refused(world: "World") -> None:
    world.gateway.epoch = 5
    await world.worker()
    world.gateway.epoch = 4
    await break_off(world.gateway)
    await world.gateway.until(lambda: world.gateway.epochs_said.count(4) > 1)
    assert world.gateway.hellos[-1].epoch == 5
    world.gateway.epoch = 6
    await world.gateway.until(lambda: world.gateway.epochs_said[-1] == 6)
    assert (await world.gateway.do(world.assignment("test.noop"))).failure is None


async def test_a_gap_in_the_sequence_numbers_makes_the_worker_report_its_full_state_again(
    world: "World",
) -> None:
    await world.worker()
    hellos = len(world.gateway.hellos)
    world.gateway._seq += 3
    await world.gateway.desire()
    await world.gateway.until(lambda: len(world.gateway.hellos) > hellos)
    assert (await world.gateway.do(world.assignment("test.noop"))).failure is None


async def test_a_final_refusal_ends_the_worker_with_the_reason(world: "World") -> None:
    world.gateway.refuse = Refused("the token is not known", final=True)
    settings = world.settings()
    agent = world.agent(settings)
    with pytest.raises(PermanentlyRefusedError, match="the token is not known"):
        await agent.run()


@contextlib.asynccontextmanager
async def answering(status: int, **headers: str) -> AsyncIterator[tuple[str, list[str]]]:
    """A control plane that refuses requests; the tokens that it was shown gather."""
    shown = list[str]()

    async def refuse(request: web.Request) -> web.Response:
        scheme, _, token = request.headers["Authorization"].partition(" ")
        assert scheme == "Bearer"
        shown.append(token)
        return web.Response(status=status, headers=headers)

    app = web.Application()
    app.router.add_get("/worker", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    yield f"ws://{host}:{port}", shown
    await runner.cleanup()


@pytest.mark.parametrize("status", [401, 403])
async def test_a_request_that_is_refused_with_a_reason_ends_the_worker(
    world: "World", status: int
) -> None:
    reason = "the token is not valid for any pool; give the worker the token of its pool"
    async with answering(status, **{REFUSAL_HEADER: reason}) as (url, shown):
        with pytest.raises(PermanentlyRefusedError, match=reason) as refused:
            await world.agent(world.settings(gateway=url)).run()
    assert str(status) in str(refused.value)
    assert len(shown) == 1


@pytest.mark.parametrize(("status", "headers"), [(503, {REFUSAL_HEADER: "not now"}), (401, {})])
async def test_a_request_refused_temporarily_or_by_a_proxy_is_sent_again(
    world: "World",
    status: int,
    headers: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with answering(status, **headers) as (url, shown):
        await world.agent(world.settings(gateway=url, orphan_timeout_s=0.3)).run()
    assert len(shown) > 1
    assert f"for now ({status}): {headers.get(REFUSAL_HEADER, '')}" in caplog.text


async def test_a_temporary_refusal_is_retried(world: "World") -> None:
    world.gateway.refuse = Refused("a worker of this name is still known", final=False)
    joining = asyncio.ensure_future(world.worker())
    await world.gateway.until(lambda: len(world.gateway.hellos) >= 2)
    world.gateway.refuse = None
    await joining
    await world.gateway.until(lambda: world.gateway.socket)
    assert (await world.gateway.do(world.assignment("test.noop"))).failure is None


async def test_a_worker_without_a_control_plane_exits_after_its_orphan_timeout(
    world: "World",
) -> None:
    settings = world.settings(gateway="ws://127.0.0.1:9", orphan_timeout_s=0.3)
    agent = world.agent(settings)
    async with asyncio.timeout(180):
        await agent.run()
