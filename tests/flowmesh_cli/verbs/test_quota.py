"""``fmesh quota`` shows the limits with what is left, and says where there are none."""

from contextlib import contextmanager
from typing import Any

import pytest

from flowmesh_api.v1.quotas import QuotaLimit, QuotaUnit, QuotaUsage
from flowmesh_cli.connection.target import HERE
from flowmesh_cli.verbs import quota
from flowmesh_cli.views.quota import left_text


class Answering:
    """A client with one answer."""

    namespace, default_namespace = "", "team-b"

    def __init__(self, answer: QuotaUsage) -> None:
        self.answer, self.asked = answer, list[Any]()

    def get(self, path: str, kind: type, **query: Any) -> QuotaUsage:
        self.asked.append((path, kind, query))
        return self.answer


def shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: QuotaUsage
) -> str:
    client = Answering(answer)

    @contextmanager
    def query_fabric(_: object) -> Any:
        yield client

    monkeypatch.setattr(quota, "query_fabric", query_fabric)
    quota.show_quota(namespace="", place=HERE, as_json=False)
    assert client.asked == [("/v1/quota", QuotaUsage, {"namespace": "team-b"})]
    output = capsys.readouterr()
    return output.out + output.err


def test_limits_are_shown_with_what_is_used_and_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = (QuotaLimit("unfinished runs", 200.0, 12.0), QuotaLimit("plans a minute", 30.0))
    text = shown(monkeypatch, capsys, QuotaUsage("team-b", "every-team", 3.0, limits))
    assert "namespace team-b: quota every-team, weight 3 in fair shares" in text
    assert ["unfinished", "runs", "200", "12", "188"] in [line.split() for line in text.split("\n")]
    assert ["plans", "a", "minute", "30"] in [line.split() for line in text.split("\n")]


def test_without_a_quota_it_shows_that_nothing_is_bounded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(monkeypatch, capsys, QuotaUsage("team-b"))
    assert "no FlowMeshQuota selects namespace team-b: nothing is bounded" in text


def test_status_shows_what_is_left_of_the_limits_that_are_counted() -> None:
    limits = (
        QuotaLimit("unfinished runs", 200.0, 12.0),
        QuotaLimit("plans a minute", 30.0),
        QuotaLimit("stored", float(1 << 40), float(1 << 39), QuotaUnit.BYTES),
        QuotaLimit("dollars in 24 h", 5.0, 6.25, QuotaUnit.USD),
    )
    assert left_text(QuotaUsage("team-b", "every-team", 3.0, limits)) == (
        "left of team-b's quota every-team: unfinished runs 188 of 200, stored 512 GiB of 1 TiB,"
        " dollars in 24 h $0 of $5.00"
    )
    assert left_text(QuotaUsage("team-b")) == ""
