"""The engine ``test.openai``: ``llm.openai`` with a model that repeats what it is sent."""

import asyncio
from collections.abc import Mapping
from typing import Any

from flowmesh_core.openai.request import CHAT, EMBEDDINGS
from flowmesh_worker.engine_api import HostSettings, TreeInput
from flowmesh_worker.engines.llm.openai import LlmOpenAi
from flowmesh_worker.engines.llm.openai_serving import OpenAiAnswer, OpenAiCall

_TOKEN_S = 0.001
_OK, _BAD_REQUEST = 200, 400
_REFUSED = "refuse me"


class TestOpenAi(LlmOpenAi):
    """The engine ``test.openai``; see :class:`flowmesh_worker.engine_api.Engine`."""

    __test__ = False  # pytest takes its name for that of a test

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Loads nothing."""
        del components, settings
        self._serving = _Echo()


class _Echo:
    """Answers with the text of the last message, or of the prompt."""

    async def answer(self, call: OpenAiCall) -> OpenAiAnswer:
        """As :meth:`OpenAiServing.answer`; refuses the text "refuse me"."""
        tokens = int(call.body.get("max_tokens", 1))
        await asyncio.sleep(_TOKEN_S * tokens)
        if call.path == EMBEDDINGS:
            return OpenAiAnswer(_OK, _embeddings(call.body))
        is_chat = call.path == CHAT
        text = call.body["messages"][-1]["content"] if is_chat else call.body["prompt"]
        if text == _REFUSED:
            error = {"message": "refused", "type": "BadRequestError", "param": None, "code": 400}
            return OpenAiAnswer(_BAD_REQUEST, {"error": error})
        said: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        said |= {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
        usage = {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": 1 + tokens}
        kind = "chat.completion" if is_chat else "text_completion"
        body = {"id": "chatcmpl-x", "object": kind, "choices": [said], "usage": usage}
        return OpenAiAnswer(_OK, body)


def _embeddings(body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a vector with the length of each text."""
    given = body["input"]
    texts = [given] if isinstance(given, str) else given
    data = [
        {"object": "embedding", "index": i, "embedding": [float(len(text))]}
        for i, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
    return {"id": "embd-x", "object": "list", "data": data, "usage": usage}
