"""``model: NAME:ADAPTER`` chooses an adapter of a service, by a real router, hub and host."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.flowmesh_serving.stack import (
    ECHO,
    MODEL,
    Host,
    Stack,
    replica_of,
    says,
    services,
    serving_stack,
    start_host_process,
)

from flowmesh_core.protocol.router_services import RouterServices, ServiceEntry
from flowmesh_serving.service_table import ServiceTable
from flowmesh_worker.ipc.frames import HostInput, Start

GERMAN, FRENCH = f"{MODEL}:german", f"{MODEL}:french"


async def host_with(folder: Path, *adapters: str) -> Host:
    loaded = {f"adapter/{name}": HostInput("tree", "0" * 64, ("/nowhere",)) for name in adapters}
    return await start_host_process(folder, Start("engine", ECHO, loaded, (), 64, 1, {}, ""))


@contextlib.asynccontextmanager
async def stack_with(
    folder: Path, offered: tuple[str, ...], *replicas: tuple[str, ...]
) -> AsyncIterator[Stack]:
    """Yields a stack whose service offers adapters, and whose replicas have loaded theirs."""
    async with serving_stack(folder, services(adapters=offered)) as stack:
        hosts = [await host_with(folder / str(n), *names) for n, names in enumerate(replicas)]
        try:
            for number, host in enumerate(hosts):
                await stack.hub.admit(replica_of(host, number))
            await stack.until_ready(len(hosts))
            yield stack
        finally:
            for host in hosts:
                await host.close()


async def ask(client: openai.AsyncOpenAI, model: str, **more: Any) -> Any:
    return await client.chat.completions.create(model=model, messages=says("one"), **more)


async def test_a_request_names_the_adapter_behind_the_model(tmp_path: Path) -> None:
    loaded = ("german", "french")
    async with stack_with(tmp_path, loaded, loaded) as stack, stack.client as client:
        for model, adapter in ((MODEL, ""), (GERMAN, "german"), (FRENCH, "french")):
            answer = await ask(client, model)
            assert (answer.model, answer.seen["adapter"]) == (model, adapter)
            stream = await ask(client, model, stream=True)
            assert {chunk.model async for chunk in stream} == {model}
        found = await client.models.list()
        assert [one.id for one in found.data] == [MODEL, GERMAN, FRENCH]
        one: Any = await client.models.retrieve(GERMAN)
        assert (one.parent, one.ready_replicas) == (MODEL, 1)


async def test_an_unknown_adapter_is_not_found_and_those_there_are_are_listed(
    tmp_path: Path,
) -> None:
    async with stack_with(tmp_path, ("german",), ("german",)) as stack, stack.client as client:
        with pytest.raises(openai.NotFoundError, match=GERMAN) as unknown:
            await ask(client, f"{MODEL}:dutch")
        assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
        for name in ("other:german", f"{MODEL}:german:", f"{MODEL}:"):
            with pytest.raises(openai.NotFoundError):
                await ask(client, name)
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve(f"{MODEL}:dutch")


async def test_a_service_without_adapters_says_so(tmp_path: Path) -> None:
    async with stack_with(tmp_path, (), ()) as stack, stack.client as client:
        with pytest.raises(openai.NotFoundError, match="the service has none"):
            await ask(client, GERMAN)


async def test_only_replicas_that_have_an_adapter_get_its_requests(tmp_path: Path) -> None:
    """A replica of an older release, or of an older worker, must not answer without it."""
    async with (
        stack_with(tmp_path, ("german", "french"), (), ("german",)) as stack,
        stack.client as client,
    ):
        answers = [await ask(client, GERMAN) for _ in range(8)]
        assert {a.seen["adapter"] for a in answers} == {"german"}
        with pytest.raises(openai.InternalServerError, match="No replica of the model") as missing:
            await ask(client, FRENCH)
        assert (missing.value.status_code, missing.value.code) == (503, "no_replica")
        shown: Any = {m.id: m async for m in client.models.list()}
        assert [shown[m].ready_replicas for m in (MODEL, GERMAN, FRENCH)] == [2, 1, 0]


def test_a_user_of_kubernetes_finds_the_service_by_either_name() -> None:
    table = ServiceTable(takes_users=True)
    entries = (ServiceEntry("team-a/x", "m", adapters=("de",)), ServiceEntry("team-a/y", "m:de"))
    table.use(RouterServices(entries))
    named = {n: table.offering("team-a", n) for n in ("m", "m:fr", "m:de", "n:de", "n")}
    assert {n: e and e.service for n, e in named.items()} == {
        "m": "team-a/x",
        "m:fr": "team-a/x",
        "m:de": "team-a/y",  # a model of this very name comes first
        "n:de": None,
        "n": None,
    }
