"""An answer that the command line does not understand is an error with its place and a remedy."""

from typing import Any

import pytest

from flowmesh_api.v1.receipts import ReceiptPage
from flowmesh_api.v1.runs import Uploaded
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_sdk.http.client import ErrorResponse


class Answering(ApiClient):
    """Gives one answer to everything."""

    def __init__(self, answer: bytes) -> None:
        super().__init__("http://there", None)  # type: ignore[arg-type] - nothing is sent
        self._answer = answer

    def call(self, *_: Any, **__: Any) -> bytes:
        return self._answer


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>a proxy</html>",
        b'{"receipts": 1}',
        b'{"receipts": [], "next": "\xff"}',
        b'{"receipts": ' + b"[" * 100_000,
    ],
    ids=["empty", "a page", "another type", "not UTF-8", "deep"],
)
def test_an_answer_that_is_not_as_expected_is_a_clear_error(answer: bytes) -> None:
    with pytest.raises(CliError, match="not what this version of fmesh expects") as caught:
        Answering(answer).get("/v1/receipts", ReceiptPage)
    assert caught.value.where == "GET /v1/receipts"
    assert caught.value.code == ExitCode.INTERNAL
    assert "http://there" in caught.value.remedy


def test_the_failed_request_is_named_with_its_method() -> None:
    with pytest.raises(CliError) as caught:
        Answering(b"{}").ask("POST", "/v1/trees", Uploaded)
    assert caught.value.where == "POST /v1/trees"


def test_an_answer_as_expected_is_decoded() -> None:
    assert Answering(b'{"receipts": []}').get("/v1/receipts", ReceiptPage) == ReceiptPage([])


def test_a_remedy_names_the_command_in_place_of_the_route() -> None:
    remedy = "GET /v1/services?namespace= lists those"
    refusal = ErrorResponse(404, "no service 'x'", "services", remedy)
    error = Answering(b"").refused(refusal)
    assert isinstance(error, CliError)
    assert error.remedy == "`fmesh services list -n NAMESPACE` lists those"


def test_a_fabric_of_another_release_is_named_with_both_versions() -> None:
    error = Answering(b"").lacking("2.0")
    assert isinstance(error, CliError)
    assert error.code == ExitCode.NO_FABRIC
    assert "http://there has version 2.0 of the API, this fmesh needs 1." in error.message
    assert "start it with this installation" in error.remedy
