"""Submitting an existing object: it continues, and is replaced once its run has ended."""

from typing import Any

import pytest

from flowmesh_cli.cluster import submission
from flowmesh_cli.cluster.objects import ExistsError
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode

DOCUMENT = {"metadata": {"name": "again", "namespace": "team"}, "spec": {"steps": []}}


class FakeCluster:
    """A fake gateway and API server with one object, whose status lags."""

    def __init__(self, said: str, known: str | None) -> None:
        self.objects = self
        self.found = {**DOCUMENT, "metadata": {**DOCUMENT["metadata"], "uid": "1"}}
        self.found["status"] = {"phase": said}
        self.known = known

    def create(self, document: dict[str, Any]) -> dict[str, Any]:
        if document["metadata"]["name"] == "again":
            raise ExistsError("there is one", ExitCode.REFUSED)
        return {**document, "metadata": {**document["metadata"], "uid": "2"}}

    def read(self, namespace: str, name: str) -> dict[str, Any]:
        assert (namespace, name) == ("team", "again")
        return self.found

    def get(self, path: str, kind: type) -> Any:
        assert path == "/v1/runs/1"
        if self.known is None:
            raise CliError("no such run", ExitCode.NOT_FOUND)
        return kind(self.known)


@pytest.mark.parametrize(
    ("said", "known", "uid"),
    [
        ("Running", "Running", "1"),
        ("Running", "Succeeded", "2"),  # the status is a moment late
        ("", None, "1"),  # not taken in yet
        ("Succeeded", None, "2"),  # forgotten by the fabric
    ],
)
def test_an_object_is_resumed_until_the_fabric_reports_that_its_run_has_ended(said, known, uid):
    made, resumed = submission._create(FakeCluster(said, known), DOCUMENT)
    assert (made["metadata"]["uid"], resumed) == (uid, uid == "1")


def test_a_refusal_by_the_gateway_is_reported():
    class Refuses(FakeCluster):
        def get(self, path: str, kind: type) -> Any:
            raise CliError("you may not", ExitCode.REFUSED)

    with pytest.raises(CliError, match="you may not"):
        submission._create(Refuses("Running", None), DOCUMENT)
