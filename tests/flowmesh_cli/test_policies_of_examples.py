"""Every command of the README works after every other one, as far as cache policies go."""

import re
from pathlib import Path

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, fmesh

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.workflows.selection import WorkflowSelection
from flowmesh_cli.workflows.sources import read_sources
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_core.errors import SpecError
from flowmesh_store.store import open_store

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def rules(file: Path) -> list[CachePolicy]:
    return [s.policy.rule() for s in read_sources(WorkflowSelection([file])).policies if s.policy]


def demos() -> dict[str, list[Path]]:
    """The files of each demo, as the Makefile names them."""
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    named = re.search(r"run (examples/demo-training/.*?) \$\(ARGS\)", text)
    assert named
    return {
        "demo": sorted((EXAMPLES / "demo").glob("*.yaml")),
        "demo-training": [ROOT / word for word in named[1].split()],
    }


@pytest.mark.parametrize(
    "order", [("demo", "demo", "demo-training"), ("demo-training", "demo", "demo-training")]
)
async def test_the_demos_run_in_one_folder_in_any_order(
    order: tuple[str, ...], tmp_path: Path
) -> None:
    store = open_store(tmp_path)
    policies = CachePolicyStore(store.records)
    for name in order:
        files = demos()[name]
        wanted = [rule for file in files for rule in rules(file)]
        policies.check(wanted, only=False)
        for rule in wanted:
            await policies.put(rule)
        sources = read_sources(WorkflowSelection(files)).workflows
        for source in sources:
            tenant = source.title.partition("/")[0]
            assert policies.scopes(tenant).publish == "group-research", source.title
    store.close()


async def test_a_policy_that_contradicts_another_is_not_set_and_nothing_changes(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    policies = CachePolicyStore(store.records)
    here = CachePolicy("research", Sharing.GROUP, "research", namespaces=("team-a", "team-b"))
    await policies.put(here)
    other = CachePolicy("other", Sharing.ALL, namespaces=("team-b",))
    fine = CachePolicy("fine", Sharing.ALL, namespaces=("team-c",))
    for wanted in ([fine, other], [CachePolicy("all", Sharing.ALL, namespaces=("*",))]):
        with pytest.raises(SpecError, match="fmesh policies delete") as caught:
            policies.check(wanted, only=False)
        assert "'research'" in str(caught.value)
    policies.check([fine], only=False)
    policies.check([other, fine], only=True)
    policies.check([CachePolicy("research", Sharing.ALL, namespaces=("team-b",))], only=False)
    policies.check([here], only=False)  # what is there already is no change
    store.close()


@pytest.mark.slow
def test_contradicting_policies_are_refused_with_the_remedy_and_the_folder_stays_usable(
    tmp_path: Path,
) -> None:
    flows.questions(tmp_path)
    flow = flows.write(tmp_path, "small", flows.scored())
    first = flows.policy(tmp_path, "team-a", "team-b")
    assert fmesh("run", first, flow, cwd=tmp_path).returncode == 0
    second = tmp_path / "second.yaml"
    second.write_text(first.read_text().replace("friends", "rivals"))
    refused = fmesh("run", second, flow, cwd=tmp_path)
    assert refused.returncode == ExitCode.USAGE
    assert "is selected by the policies 'friends' and 'rivals'" in refused.stderr
    assert "fmesh policies delete friends" in refused.stderr
    assert [p["name"] for p in answer("policies", "list", cwd=tmp_path)] == ["friends"]
    assert fmesh("run", flow, cwd=tmp_path).returncode == 0  # the folder takes work as before
    assert fmesh("policies", "delete", "friends", cwd=tmp_path).returncode == 0
    assert fmesh("run", second, flow, cwd=tmp_path).returncode == 0
