"""The two ways to ask a service with stages: its own ``:invoke``, and chats of OpenAI's API."""

import time
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.openai.chat_question import chat_question
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.openai.request import CHAT, check_request
from flowmesh_core.protocol.router_services import ChatFields, ServiceEntry
from flowmesh_serving.errors import answer_no_text, unknown_model
from flowmesh_serving.http.whole_response import EVENTS
from flowmesh_serving.stages.stage_events import StageReply, event

_DONE = b"data: [DONE]\n\n"
_bodies = msgspec.json.Decoder(dict)
_encoder = msgspec.json.Encoder()


class AskedStages(NamedTuple):
    """What a client asks of stages.

    Attributes:
        request: of the service, as JSON.
        stream: whether the answer is wanted as it is made.
    """

    request: bytes
    stream: bool


class ReplyFormat(Protocol):
    """How a client gets a reply.

    Attributes:
        answer: the field that it gets; empty for all.
    """

    answer: str

    def whole(self, reply: StageReply) -> bytes:
        """Returns the body of the response.

        Raises:
            OpenAiError: the reply is not what the client was promised.
        """
        ...

    def text(self, text: str) -> bytes:
        """Returns the events of a text that a stage has made."""
        ...

    def last(self, reply: StageReply) -> bytes:
        """Returns the events that end a stream."""
        ...

    def error(self, error: OpenAiError) -> bytes:
        """Returns the event that ends a stream without a reply."""
        ...


class RequestFormat(Protocol):
    """How a client asks."""

    def asked(self, body: bytes, headers: Mapping[str, str]) -> AskedStages:
        """Returns what is asked.

        Raises:
            OpenAiError: the body is not such a request.
        """
        ...

    def reply(self, request_id: str, stage: str) -> ReplyFormat:
        """Returns how the client gets the reply.

        Args:
            request_id: of the request.
            stage: whose answer is streamed.
        """
        ...


class InvokeFormat:
    """The ``RequestFormat`` of ``:invoke``: the request is the body, the reply all its fields."""

    def asked(self, body: bytes, headers: Mapping[str, str]) -> AskedStages:
        """See ``RequestFormat.asked``."""
        return AskedStages(body, EVENTS in headers.get("Accept", ""))

    def reply(self, request_id: str, stage: str) -> "InvokeReply":
        """See ``RequestFormat.reply``."""
        del request_id
        return InvokeReply(stage)


class InvokeReply:
    """The ``ReplyFormat`` of ``:invoke``.

    Attributes:
        answer: see ``ReplyFormat``.
    """

    answer = ""

    def __init__(self, stage: str) -> None:
        self._stage = stage

    def whole(self, reply: StageReply) -> bytes:
        """See ``ReplyFormat.whole``."""
        return _encoder.encode(reply.fields)

    def text(self, text: str) -> bytes:
        """See ``ReplyFormat.text``."""
        return event("text", {"stage": self._stage, "text": text})

    def last(self, reply: StageReply) -> bytes:
        """See ``ReplyFormat.last``."""
        return event("reply", reply.fields)

    def error(self, error: OpenAiError) -> bytes:
        """See ``ReplyFormat.error``."""
        return event("error", error.body())


class ChatFormat:
    """The ``RequestFormat`` of OpenAI's chats: the last user message asks, one field answers."""

    def __init__(self, service: ServiceEntry, chat: ChatFields, *, streams: bool) -> None:
        """Asks a service.

        Args:
            service: that is offered as a chat model.
            chat: its question and answer.
            streams: whether a stage streams the answer.
        """
        self._model = service.model
        self._chat = chat
        self._streams = streams

    def asked(self, body: bytes, headers: Mapping[str, str]) -> AskedStages:
        """See ``RequestFormat.asked``."""
        del headers
        try:
            decoded = decode(_bodies, body)
        except msgspec.DecodeError as error:
            text = f"The request's body is not a JSON object: {error}"
            raise OpenAiError(text, code="invalid_json") from None
        checked = check_request(CHAT, decoded)
        if checked.model != self._model:
            raise unknown_model(checked.model)
        question = chat_question(checked, streams=self._streams)
        return AskedStages(_encoder.encode({self._chat.question: question}), checked.is_stream)

    def reply(self, request_id: str, stage: str) -> "ChatReply":
        """See ``RequestFormat.reply``."""
        del stage
        return ChatReply(f"chatcmpl-{request_id}", self._model, self._chat.answer)


class ChatReply:
    """The ``ReplyFormat`` of OpenAI's chats.

    Attributes:
        answer: see ``ReplyFormat``.
    """

    def __init__(self, reply_id: str, model: str, answer: str) -> None:
        """Makes one answer.

        Args:
            reply_id: its id.
            model: as the client named it.
            answer: the field of the service's reply.
        """
        self._head = {"id": reply_id, "created": int(time.time()), "model": model}
        self.answer = answer
        self._has_begun = False

    def whole(self, reply: StageReply) -> bytes:
        """See ``ReplyFormat.whole``."""
        content = reply.fields[self.answer]
        if isinstance(content, msgspec.Raw):  # the whole value of a stage, which was read before
            content = msgspec.json.decode(content)
        if not isinstance(content, str):
            raise answer_no_text(self.answer)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": content},
            "finish_reason": reply.finish_reason,
        }
        return _encoder.encode({**self._head, "object": "chat.completion", "choices": [choice]})

    def text(self, text: str) -> bytes:
        """See ``ReplyFormat.text``."""
        delta = {"content": text} if self._has_begun else {"role": "assistant", "content": text}
        self._has_begun = True
        return self._chunk(delta, None)

    def last(self, reply: StageReply) -> bytes:
        """See ``ReplyFormat.last``."""
        return self._chunk({}, reply.finish_reason) + _DONE

    def error(self, error: OpenAiError) -> bytes:
        """See ``ReplyFormat.error``."""
        return b"data: " + _encoder.encode(error.body()) + b"\n\n"

    def _chunk(self, delta: dict[str, str], finish_reason: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        chunk = {**self._head, "object": "chat.completion.chunk", "choices": [choice]}
        return b"data: " + _encoder.encode(chunk) + b"\n\n"
