"""``fmesh token``: what it sends, and what it shows."""

from contextlib import contextmanager
from typing import Any

import pytest

from flowmesh_api.v1.services import (
    ServiceTokenCreated,
    ServiceTokenList,
    ServiceTokenRequest,
    ServiceTokenRevoked,
    ServiceTokenShown,
)
from flowmesh_cli.connection.target import HERE
from flowmesh_cli.errors import CliError
from flowmesh_cli.verbs import tokens

DAY_S = 86_400.0
PATH, QUERY = "/v1/services/ask/tokens", {"namespace": "team-b"}


class Answering:
    """A client with answers in order of the requests."""

    namespace, default_namespace = "", "team-b"

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), list[Any]()

    def ask(self, method: str, path: str, kind: type, **more: Any) -> Any:
        self.asked.append((method, path, kind, more))
        return self.answers.pop(0)

    def get(self, path: str, kind: type, **query: Any) -> Any:
        return self.ask("GET", path, kind, query=query)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Answering:
    found = Answering()

    @contextmanager
    def query_fabric(_: object) -> Any:
        yield found

    monkeypatch.setattr(tokens, "query_fabric", query_fabric)
    return found


def test_a_created_token_is_printed_alone(
    client: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    client.answers = [ServiceTokenCreated("id-1", "fm-secret", 30 * DAY_S)]
    tokens.create_token("ask", expires="30d", namespace="", place=HERE, as_json=False)
    more = {"query": QUERY, "document": ServiceTokenRequest(30 * DAY_S)}
    assert client.asked == [("POST", PATH, ServiceTokenCreated, more)]
    shown = capsys.readouterr()
    assert shown.out == "fm-secret\n"
    assert "id id-1, expires 1970-01-31" in shown.err


def test_a_token_may_never_expire(client: Answering) -> None:
    client.answers = [ServiceTokenCreated("id-1", "fm-secret")]
    tokens.create_token("ask", expires="never", namespace="", place=HERE, as_json=False)
    assert client.asked[0][3]["document"] == ServiceTokenRequest(0.0)


@pytest.mark.parametrize(("text", "reason"), [("soon", "not a duration"), ("0s", "more than 0")])
def test_a_wrong_duration_is_refused_before_a_request(
    client: Answering, text: str, reason: str
) -> None:
    with pytest.raises(CliError, match=reason):
        tokens.create_token("ask", expires=text, namespace="", place=HERE, as_json=False)
    assert client.asked == []


def test_tokens_are_listed_and_revoked_by_id(
    client: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = ServiceTokenList((ServiceTokenShown("id-1", DAY_S), ServiceTokenShown("id-2", 0, 1)))
    client.answers = [listed, ServiceTokenRevoked()]
    tokens.show_tokens("ask", namespace="", place=HERE, as_json=False)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows[-2:]] == ["id-1", "id-2"]
    assert rows[-2][-1] == "never"
    tokens.revoke_token("ask", "id-1", namespace="", place=HERE, as_json=False)
    method, path, kind, more = client.asked[-1]
    assert (method, path, kind) == ("DELETE", f"{PATH}/id-1", ServiceTokenRevoked)
    assert more == {"query": QUERY}
