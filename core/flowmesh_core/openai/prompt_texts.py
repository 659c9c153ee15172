"""The texts of a prompt, in the order in which an engine reads them.

Called by a router, which sends prompts that begin alike to one replica.
"""

from collections.abc import Iterator
from typing import Any

import orjson

from flowmesh_core.openai.request import CHAT, COMPLETIONS, OpenAiRequest


def prompt_texts(request: OpenAiRequest) -> Iterator[str]:
    """Yields the texts of a request's prompt; none of a request for embeddings.

    Of a chat these are its tools, as JSON, and the role and texts of each message; of several
    prompts in one request only the first is read.

    Args:
        request: that was checked.
    """
    body = request.body
    if request.path == COMPLETIONS:
        prompt = body["prompt"]
        yield prompt if isinstance(prompt, str) else prompt[0]
    elif request.path == CHAT:
        for tool in body.get("tools", ()):
            yield orjson.dumps(tool).decode()
        for message in body["messages"]:
            yield message["role"]
            yield from texts_of(message.get("content"))


def texts_of(content: Any) -> Iterator[str]:
    """Yields the texts of a message's content, which was checked."""
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        yield part["text"]
