"""What is revoked on a laptop is found in any namespace, as runs are."""

from typing import Any

import msgspec
import pytest

from flowmesh_api.v1.lineage import Derivation, LineageWalk
from flowmesh_api.v1.runs import RunSummary
from flowmesh_cli.connection.artifact_lookup import find_artifact
from flowmesh_cli.connection.run_lookup import find_run_and_output
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode

DIGEST = "ab" * 32


def run(uid: str, name: str, namespace: str) -> RunSummary:
    known = {"uid": uid, "name": name, "namespace": namespace, "phase": "Succeeded"}
    required = [f for f in msgspec.structs.fields(RunSummary) if f.required]
    zeros = {f.name: f.type() for f in required if f.name not in known}
    return msgspec.convert(known | zeros, RunSummary)


def made(namespace: str) -> Derivation:
    return Derivation("r-1", "best", namespace, "step", "data.sql", 1, 1, {}, {"rows": DIGEST}, 0.0)


class Laptop:
    """A client of a laptop's fabric, which has no namespace of its own."""

    namespace, default_namespace = "", ""

    def __init__(self, *namespaces: str) -> None:
        self.derivations = tuple(made(one) for one in namespaces)

    def get(self, path: str, kind: type, **query: Any) -> Any:
        if path == "/v1/runs":
            return [
                run("best-1111", "best", "team-a"),
                run("best-2222", "best", "team-a"),
                run("twin-3333", "twin", "team-a"),
                run("twin-4444", "twin", "team-b"),
            ]
        if not self.derivations:
            raise CliError("no known run", ExitCode.NOT_FOUND)
        return LineageWalk(DIGEST, query["direction"], self.derivations)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("best/answers", ("best/answers", "team-a")),
        ("best-1/answers", ("best-1111/answers", "team-a")),
        ("team-b/twin/answers", ("twin-4444/answers", "team-b")),
        ("twin-4444/answers", ("twin-4444/answers", "team-b")),
    ],
)
def test_an_output_is_in_the_namespace_of_its_run(given: str, found: tuple[str, str]) -> None:
    assert find_artifact(Laptop(), given) == found


@pytest.mark.parametrize("given", [DIGEST, f"cas:dataset:{DIGEST}:seal"])
def test_content_is_in_the_namespace_whose_runs_have_it(given: str) -> None:
    assert find_artifact(Laptop("team-b", "team-b"), given) == (given, "team-b")


def test_an_upload_that_no_run_has_used_is_left_to_the_server() -> None:
    reference = f"cas:dataset:{DIGEST}:seal"
    assert find_artifact(Laptop(), reference) == (reference, "")


def test_an_unknown_digest_is_an_error() -> None:
    with pytest.raises(CliError, match="no known run"):
        find_artifact(Laptop(), DIGEST)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("twin/answers", "2 namespaces have a run 'twin'"),
        (DIGEST, f"2 namespaces have '{DIGEST}'"),
    ],
)
def test_several_namespaces_are_named_before_anything_is_revoked(given: str, message: str) -> None:
    with pytest.raises(CliError, match=message) as caught:
        find_artifact(Laptop("team-b", "team-a"), given)
    assert caught.value.remedy == "choose one: -n team-a or -n team-b"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("best", ("best-2222", "")),
        ("best/answers", ("best-2222", "answers")),
        ("team-b/twin", ("twin-4444", "")),
        ("team-b/twin/answers", ("twin-4444", "answers")),
    ],
)
def test_a_namespace_may_come_before_a_run_and_an_output_after_it(
    given: str, found: tuple[str, str]
) -> None:
    assert find_run_and_output(Laptop(), given) == found
