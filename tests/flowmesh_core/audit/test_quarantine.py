"""A quarantine changes the names of one signature class, in every scope, and of nothing else."""

from dataclasses import replace
from typing import Any

import msgspec
from tests.flowmesh_core.machine.world import MAP, NOOP, World, dataset, plan, rows_of, step

from flowmesh_core.catalog.contract import Param, ParamType, Port, PortKind
from flowmesh_core.graph.plan import Resources
from flowmesh_core.identity.quarantine_salt import salt_of, signature_class
from flowmesh_core.machine.action_spec import name_of
from flowmesh_core.units import Digest

CLASS_OF_NOOP = signature_class(NOOP, {}, {}, {})


def names(salts: dict[Digest, int], share: str = "") -> dict[str, set[str]]:
    """The names under which a run of two engines publishes, by engine."""
    world = World()
    world.join("w1")
    data = dataset("a", "b")
    steps = (step("plain", value=1), step("map", rows_of(data), uses=MAP))
    world.submit(plan(*steps), "u", share=share, artifacts=[data], quarantine_salts=salts)
    world.run()
    found: dict[str, set[str]] = {}
    for (_, name), result in world.cache.items():
        found.setdefault(result.engine, set()).add(name)
    return found


def test_only_the_names_of_the_quarantined_class_change() -> None:
    before, after = names({}), names({CLASS_OF_NOOP: 1})
    assert before["test.map"] == after["test.map"]
    assert not before["test.noop"] & after["test.noop"]


def test_each_further_quarantine_gives_new_names() -> None:
    seen = [names({CLASS_OF_NOOP: n} if n else {})["test.noop"] for n in range(4)]
    assert len(set.union(*seen)) == 4


def test_every_scope_sees_the_new_name() -> None:
    private, shared = names({CLASS_OF_NOOP: 1}), names({CLASS_OF_NOOP: 1}, share="group-x")
    assert private == shared


def test_a_run_admitted_after_a_quarantine_does_not_reuse_earlier_results() -> None:
    world = World()
    world.join("w1")
    world.submit(plan(step("plain")), "u1")
    world.run()
    world.submit(plan(step("plain")), "u2", quarantine_salts={CLASS_OF_NOOP: 1})
    world.run()
    world.submit(plan(step("plain")), "u3")  # it was pinned before: what it pinned, it keeps
    world.run()
    world.submit(plan(step("plain")), "u4", quarantine_salts={CLASS_OF_NOOP: 1})
    world.run()
    ran = {uid: (s.executed, s.hits) for uid, s in world.finals.items()}
    assert ran == {"u1": (1, 0), "u2": (1, 0), "u3": (0, 1), "u4": (0, 1)}


def test_the_class_depends_only_on_what_could_have_caused_the_result() -> None:
    wide = Param("mode", ParamType.STRING, default="a", batch_wide=True)
    narrow = Param("seed", ParamType.INTEGER, default=0)
    ports = (Port("model", PortKind.MODEL, component=True), Port("rows", PortKind.DATASET))
    contract = replace(NOOP, params=(wide, narrow), inputs=ports)

    def of(params: dict[str, Any] | None = None, **inputs: str) -> Digest:
        given = {"model": "m", "rows": "r", **inputs}
        return signature_class(contract, params or {}, {}, {p: Digest(d) for p, d in given.items()})

    assert of() == of({"seed": 4}) == of(rows="other") == of({"mode": "a"})
    assert len({of(), of({"mode": "b"}), of(model="other")}) == 3


def test_resource_requirements_are_not_part_of_a_class() -> None:
    world = World()
    world.join("w1")
    small = step("one", value=1)
    large = msgspec.structs.replace(small, path="two", resources=Resources(memory_mib=512))
    world.submit(plan(small, large), "u", quarantine_salts={CLASS_OF_NOOP: 1})
    run = world.machine.state.runs["u"]
    assert name_of(run, run.steps["one"], {}) == name_of(run, run.steps["two"], {})


def test_the_salt_of_what_is_not_quarantined_is_empty() -> None:
    assert not salt_of({CLASS_OF_NOOP: 2}, Digest("0" * 64))
    assert salt_of({CLASS_OF_NOOP: 2}, CLASS_OF_NOOP) == "quarantine:2"
