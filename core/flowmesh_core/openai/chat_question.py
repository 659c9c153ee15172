"""The question of a chat that is sent to a service with stages, which set all else themselves."""

from flowmesh_core.openai.errors import OpenAiError, invalid_value
from flowmesh_core.openai.prompt_texts import texts_of
from flowmesh_core.openai.request import OpenAiRequest

_PARAMETERS = frozenset({"model", "messages", "stream", "user"})


def chat_question(request: OpenAiRequest, *, streams: bool) -> str:
    """Returns the text of the last user message; the messages before it are not read.

    Args:
        request: a chat that was checked.
        streams: whether the service's answer can be sent as it is made.

    Raises:
        OpenAiError: there is no such message, or a parameter asks for what stages do not do.
    """
    for name in request.body:
        if name not in _PARAMETERS:
            raise OpenAiError(
                f"Unsupported parameter: '{name}'. The model is a service with stages, which sets"
                " it itself.",
                param=name,
                code="unsupported_parameter",
            )
    if request.is_stream and not streams:
        raise invalid_value("stream", "no stage of the service streams its answer.")
    asked = [m for m in request.body["messages"] if m["role"] == "user"]
    text = "\n".join(texts_of(asked[-1].get("content"))) if asked else ""
    if not text:
        raise invalid_value("messages", "expected a message of the user, with a text.")
    return text
