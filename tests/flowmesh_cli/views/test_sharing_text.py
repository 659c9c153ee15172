"""With whom results are shared, as ``fmesh plan`` and ``fmesh policies --mine`` show it."""

from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_cli.connection.target import HERE
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.main import app
from flowmesh_cli.verbs import fabric
from flowmesh_cli.views.sharing import policy_changes, shared_scope, sharing_text

GROUP = CachePolicy("research", Sharing.GROUP, "g", ("team-a", "team-b"))
SALTED = CachePolicy("salted", Sharing.GROUP, "g", ("team-c",), salt="s")
LABELS = CachePolicy("gold", Sharing.GROUP, "g", labels={"tier": "gold", "env": "prod"})
EVERY = CachePolicy("open", Sharing.ALL, namespaces=("*",))
SOME = CachePolicy("some", Sharing.ALL, namespaces=("team-a", "team-d"))
OWN = CachePolicy("own", Sharing.PRIVATE, namespaces=("team-a", "team-b"))


@pytest.mark.parametrize(
    ("policies", "scope", "text"),
    [
        ([], "ns-team-a", "shared with no other namespace"),
        ([OWN, GROUP], "ns-team-a", "shared with no other namespace"),
        ([GROUP], "group-g", "shared with team-b (group g; cache policy research)"),
        ([GROUP, SALTED], "group-g", "shared with team-b (group g; cache policy research)"),
        (
            [GROUP, LABELS],
            "group-g",
            "shared with team-b, namespaces with tier=gold and env=prod"
            " (group g; cache policy research, gold)",
        ),
        (
            [LABELS, SALTED],
            "group-g",
            "shared with namespaces with tier=gold and env=prod (group g; cache policy gold)",
        ),
        (
            [EVERY, SOME],
            "all",
            "shared with every namespace (all namespaces; cache policy open, some)",
        ),
        ([SOME], "all", "shared with team-d (all namespaces; cache policy some)"),
        (
            [CachePolicy("one", Sharing.GROUP, "g", ("team-a",))],
            "group-g",
            "shared with no other namespace yet (group g; cache policy one)",
        ),
    ],
)  # fmt: skip
def test_it_names_the_namespaces_and_the_policy(
    policies: list[CachePolicy], scope: str, text: str
) -> None:
    assert sharing_text(shared_scope(policies, "team-a", scope)) == text


def test_the_policies_of_a_namespace_are_shown_with_those_that_select_by_labels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Client:
        namespace, default_namespace = "", "team-b"

        def get(self, path: str, kind: type) -> list[CachePolicy]:
            assert (path, kind) == ("/v1/policies", list[CachePolicy])
            return [GROUP, LABELS]

    @contextmanager
    def query_fabric(_: object) -> Any:
        yield Client()

    monkeypatch.setattr(fabric, "query_fabric", query_fabric)
    fabric.show_own_policies(namespace="", place=HERE, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "results of namespace team-b are shared with team-a, namespaces with tier=gold and env=prod"
        " (group g; cache policy research, gold)",
        "  selected by cache policy research; least trust 1, prefix caches private, runs of other"
        " namespaces named",
        "  cache policy gold selects namespaces with tier=gold and env=prod: scope group g",
    ]


@pytest.mark.parametrize("words", [["-n", "team-a", "list"], ["--mine", "list"]])
def test_options_before_a_subcommand_are_refused(words: list[str]) -> None:
    done = CliRunner().invoke(app, ["policies", *words])
    assert done.exit_code == ExitCode.USAGE
    assert "of `policies` has no effect here" in done.output


def test_a_replaced_policy_is_shown_with_what_has_changed() -> None:
    before = CachePolicy("p", Sharing.GROUP, "g", ("a", "b"), {"team": "x"})
    after = CachePolicy("p", Sharing.GROUP, "h", ("b", "c"), min_trust=2)
    assert policy_changes(None, after) == "is set"
    assert policy_changes(after, after) == "is unchanged"
    assert policy_changes(before, after) == (
        "replaces the one of its name: namespaces without a, with c; labels without team=x; "
        "group g → h; min trust none → 2"
    )
