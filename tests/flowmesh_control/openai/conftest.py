"""A fabric whose batches are answered without a model, and OpenAI's own client."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession
from openai import AsyncOpenAI
from tests.flowmesh_control.fabric import API_TOKEN, Fabric, control_plane

from flowmesh_control.settings import ControlSettings

SETTINGS = ControlSettings(
    openai_engine="test.openai", model_aliases={"gpt-4o-mini": "smollm2-135m-instruct"}
)


def client_of(url: str, namespace: str = "team-a", token: str = API_TOKEN) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url}/openai/v1", api_key=token, project=namespace, max_retries=0)


@pytest.fixture
async def fabric(tmp_path: Path) -> AsyncIterator[Fabric]:
    control = control_plane(tmp_path, settings=SETTINGS)
    await control.start()
    async with ClientSession() as http:
        fabric = Fabric(tmp_path, control, http)
        yield fabric
        await asyncio.to_thread(fabric.close)
    await fabric.control.stop()


@pytest.fixture
async def client(fabric: Fabric) -> AsyncIterator[AsyncOpenAI]:
    async with client_of(fabric.control.url) as found:
        yield found
