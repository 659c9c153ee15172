"""Errors in OpenAI's shape and words, which its clients turn into their own exceptions."""

from typing import Any

from flowmesh_core.errors import FlowMeshError

BAD_REQUEST = 400
INVALID_REQUEST = "invalid_request_error"


class OpenAiError(FlowMeshError):
    """A request that is refused as OpenAI's API would refuse it.

    Attributes:
        message: a sentence, in OpenAI's words where it has some.
        status: the HTTP status code.
        type: OpenAI's class of the error.
        param: the parameter at fault, such as ``messages[0].content``; None where it is none.
        code: OpenAI's name of the reason; None where it has none.
    """

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        status: int = BAD_REQUEST,
        type: str = INVALID_REQUEST,  # noqa: A002 - OpenAI's word
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.type = type
        self.param = param
        self.code = code

    def body(self) -> dict[str, Any]:
        """Returns the response's JSON body."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error}


def without_number_as_code(body: dict[str, Any]) -> dict[str, Any]:
    """Returns a response's body whose error has no number as its code.

    OpenAI's codes are texts or null, and its client declares them so; vLLM repeats the status.
    """
    error = body.get("error")
    if not isinstance(error, dict) or not isinstance(error.get("code"), int):
        return body
    return {**body, "error": {**error, "code": None}}


def unknown_parameter(param: str) -> OpenAiError:
    """Returns the error of a parameter that this API does not accept."""
    return OpenAiError(f"Unknown parameter: '{param}'.", param=param, code="unknown_parameter")


def missing_parameter(param: str) -> OpenAiError:
    """Returns the error of a parameter that is missing."""
    return OpenAiError(
        f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter"
    )


def invalid_type(param: str, expected: str, value: Any) -> OpenAiError:
    """Returns the error of a value that has another type."""
    return OpenAiError(
        f"Invalid type for '{param}': expected {expected}, but got {_type_name(value)} instead.",
        param=param,
        code="invalid_type",
    )


def invalid_value(param: str, problem: str, code: str = "invalid_value") -> OpenAiError:
    """Returns the error of a value that is out of bounds."""
    return OpenAiError(f"Invalid '{param}': {problem}", param=param, code=code)


def _type_name(value: Any) -> str:
    names = {
        bool: "a boolean",
        int: "an integer",
        float: "a decimal",
        str: "a string",
        list: "an array",
        dict: "an object",
        type(None): "null",
    }
    return names.get(type(value), type(value).__name__)
