"""Adding a parameter with a default changes no name; setting it needs a worker that knows it.

The names of ``GENERATE`` are frozen in ``test_golden``, so equal names are frozen ones.
"""

from dataclasses import replace
from typing import Any

import pytest
from tests.flowmesh_core.identity.engines import GENERATE

from flowmesh_core.catalog.builtin.llm import EMBED
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import Determinism, Param, ParamType
from flowmesh_core.catalog.determinism import determinism_of
from flowmesh_core.identity import action_id, digest_bytes, effective_params, signature
from flowmesh_core.identity.additions import needed_minor

ADDITIONS = (
    Param("minTokens", ParamType.INTEGER, 0, minimum=0, added=1),
    Param("badWords", ParamType.LIST, [], added=1),
    Param("regex", ParamType.STRING, added=2),
    Param("quantization", ParamType.STRING, "auto", batch_wide=True, added=2),
    Param("anything", ParamType.ANY, 1, added=2),
)
LATER = replace(GENERATE, params=(*GENERATE.params, *ADDITIONS), minor=2)
MODEL, ROWS = digest_bytes(b"model"), digest_bytes(b"rows")
FIELDS = {"dtype": "float32"}


def names(contract: Any, with_: dict[str, Any], fields: dict[str, Any] = FIELDS) -> tuple[str, str]:
    params = effective_params(contract, {"prompt": "Q: {{ q }}", **with_})
    return (
        action_id(contract, params, fields, {"model": MODEL, "rows": ROWS}),
        signature(contract, params, fields, {"model": MODEL, "rows": ROWS}, "class", ["adapter"]),
    )


@pytest.mark.parametrize(
    "with_", [{}, {"samples": 4, "temperature": 0.5}, {"maxModelLen": 64, "stop": ["\n"]}]
)
def test_an_added_parameter_does_not_change_existing_names(with_: dict[str, Any]) -> None:
    assert names(LATER, with_) == names(GENERATE, with_)
    written = {"minTokens": 0, "badWords": [], "regex": None, "quantization": "auto", "anything": 1}
    assert names(LATER, {**with_, **written}) == names(GENERATE, with_)


@pytest.mark.parametrize(
    ("with_", "minor"),
    [
        ({"minTokens": 3}, 1),
        ({"badWords": ["x"]}, 1),
        ({"regex": ""}, 2),
        ({"quantization": "awq"}, 2),
        ({"anything": True}, 2),  # which is equal to the default 1 in Python
        ({"minTokens": 3, "regex": "a"}, 2),
    ],
)
def test_an_added_parameter_that_is_set_is_part_of_the_name_and_needs_its_minor(
    with_: dict[str, Any], minor: int
) -> None:
    plain, changed = names(LATER, {}), names(LATER, with_)
    assert changed[0] != plain[0]
    assert changed[1] != plain[1]  # so that no batch has actions that need different workers
    assert needed_minor(LATER, effective_params(LATER, {"prompt": "x", **with_}), FIELDS) == minor
    assert needed_minor(LATER, effective_params(LATER, {"prompt": "x"}), FIELDS) == 0


def test_an_identity_field_may_be_added_likewise() -> None:
    before = replace(GENERATE, identity_fields=("dtype",))
    after = replace(
        before,
        identity_fields=("dtype", "tensorParallel"),
        added_fields=(("tensorParallel", 1),),
        minor=1,
    )
    for fields in (FIELDS, {**FIELDS, "tensorParallel": 1}):
        assert names(after, {}, fields) == names(before, {}, FIELDS)
        assert needed_minor(after, {}, fields) == 0
    assert names(after, {}, {**FIELDS, "tensorParallel": 2}) != names(before, {}, FIELDS)
    assert needed_minor(after, {}, {**FIELDS, "tensorParallel": 2}) == 1


def test_an_engines_own_default_of_an_added_identity_field_changes_no_name() -> None:
    before = replace(EMBED, identity_fields=("dtype",), added_fields=(), field_defaults=(), minor=0)

    def named(contract: Any, **fields: str) -> tuple[str, str]:
        inputs = {"model": MODEL, "rows": ROWS}
        given = {"dtype": "auto", **fields}
        params = effective_params(contract, {"column": "t"})
        return (
            action_id(contract, params, given, inputs),
            signature(contract, params, given, inputs, "class", []),
        )

    assert named(EMBED) == named(EMBED, implementation="transformers") == named(before)
    batched = named(EMBED, implementation="vllm")
    assert batched[0] != named(EMBED)[0]
    assert batched[1] != named(EMBED)[1]  # an engine instance of its own
    minors = [needed_minor(EMBED, {}, {"implementation": i}) for i in ("transformers", "vllm")]
    assert minors == [0, 1]
    classes = [determinism_of(EMBED, {}, {"implementation": i}) for i in ("transformers", "vllm")]
    assert classes == [Determinism.SEEDED, Determinism.SAMPLED]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"minor": 1}, "regex was added in minor 2, but the contract has minor 1; raise minor"),
        (
            {"params": (Param("x", ParamType.STRING, required=True, added=1),)},
            "x was added later and is required",
        ),
        ({"added_fields": (("dtpye", 1),)}, "dtpye is not among its identity fields"),
    ],
)
def test_an_addition_that_would_change_names_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Catalog([replace(LATER, **changes)])


def test_a_pinned_contract_has_at_least_the_minor_that_a_step_needs() -> None:
    old, new = Catalog([GENERATE]), Catalog([LATER, GENERATE])
    pin = (GENERATE.name, GENERATE.version, GENERATE.implementation)
    assert old.pinned(*pin) is GENERATE
    assert old.pinned(*pin, 1) is None
    assert new.pinned(*pin, 1) is new.pinned(*pin) is new.newest(GENERATE.name) is LATER
