"""Batches for tests: their lines, and waiting for their states."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from openai import AsyncOpenAI
from openai.types import Batch

MODEL = "smollm2-135m-instruct"
CHAT = "/v1/chat/completions"


def line(custom_id: str, text: str = "", **more: Any) -> dict[str, Any]:
    """Returns a line that asks for a chat completion; its text is the id where none is given."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": text or custom_id}], **more}
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body}


def encoded(lines: Iterable[dict[str, Any] | str]) -> bytes:
    """Returns a file of lines; a string is written as it is."""
    texts = (given if isinstance(given, str) else json.dumps(given) for given in lines)
    return "".join(f"{text}\n" for text in texts).encode()


async def uploaded(client: AsyncOpenAI, lines: Iterable[dict[str, Any] | str]) -> str:
    """Uploads a file; returns its id."""
    file = await client.files.create(file=("in.jsonl", encoded(lines)), purpose="batch")
    return file.id


async def created(
    client: AsyncOpenAI,
    lines: Iterable[dict[str, Any] | str],
    window: str = "24h",
    endpoint: Any = CHAT,
    **more: Any,
) -> Batch:
    """Uploads a file and creates its batch."""
    name = await uploaded(client, lines)
    return await client.batches.create(
        input_file_id=name,
        endpoint=endpoint,
        completion_window=window,  # type: ignore[arg-type]
        **more,
    )


async def reaches(client: AsyncOpenAI, name: str, *statuses: str, within_s: float = 120) -> Batch:
    """Waits until a batch has one of these statuses."""
    seen = []
    async with asyncio.timeout(within_s):
        while True:
            batch = await client.batches.retrieve(name)
            if batch.status in statuses:
                return batch
            if batch.status not in seen:
                seen.append(batch.status)
            ended = batch.status in ("completed", "failed", "expired", "cancelled")
            assert not ended, (batch.status, batch.errors, statuses, seen)
            await asyncio.sleep(0.05)


async def lines_of(client: AsyncOpenAI, name: str | None) -> list[dict[str, Any]]:
    """Returns the lines of a file."""
    assert name is not None
    content = await client.files.content(name)
    return [json.loads(text) for text in content.text.splitlines()]


def texts_of(lines: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Returns the answers by custom id, of which each may be there once."""
    found: dict[str, str] = {}
    for given in lines:
        assert given["custom_id"] not in found
        body = given["response"]["body"]
        found[given["custom_id"]] = body["choices"][0]["message"]["content"]
    return found
