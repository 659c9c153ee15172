"""Frozen names. A failure here means that every cached result in the world is lost: it needs a new
version of the scheme, never new vectors."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from tests.flowmesh_core.identity.engines import GENERATE

from flowmesh_core.dataset import (
    Manifest,
    Schema,
    borders,
    columns_of,
    dataset_digest,
    row_digest,
    row_digests,
    rows_digest,
)
from flowmesh_core.dataset.manifest import ChunkRef
from flowmesh_core.identity import (
    SCHEME,
    action_id,
    canonical_bytes,
    content_identity,
    digest_bytes,
    digest_value,
    effective_params,
    signature,
    tree_identity,
)
from flowmesh_core.sharing import REFERENCES_CONTEXT, KeyRing, issue
from flowmesh_core.units import Digest

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("golden-2.json").read_text())
KEYS = KeyRing.of(b"k" * 32).derive(REFERENCES_CONTEXT)
NUMBERS = Schema.of({"n": "int", "text": "string"})


FORMER: dict[str, Any] = json.loads(Path(__file__).with_name("golden-1.json").read_text())
"""The vectors of scheme 1, which nothing may produce any more."""


def numbers() -> list[dict[str, Any]]:
    return [{"n": n, "text": f"row {n}"} for n in range(500)]


def test_the_golden_vectors_are_of_the_current_scheme() -> None:
    assert GOLDEN["scheme"] == SCHEME


@pytest.mark.parametrize("case", GOLDEN["canonical"], ids=lambda c: c["form"][:40])
def test_canonical_forms_are_frozen(case: dict[str, Any]) -> None:
    assert canonical_bytes(case["value"]).decode() == case["form"]
    assert digest_value("test", case["value"]) == case["digest"]


def test_a_digest_is_blake3_of_scheme_tag_and_form() -> None:
    assert digest_value("test", {"a": 1}) == blake3(b'flowmesh/2\0test\0{"a":1}').hexdigest()


def test_action_ids_and_signatures_are_frozen() -> None:
    params = effective_params(
        GENERATE, {"prompt": "Q: {{ q }}", "temperature": 1e-5, "stop": ["é"]}
    )
    inputs = {"model": digest_bytes(b"model"), "rows": digest_bytes(b"rows")}
    fields = {"dtype": "float32"}
    assert action_id(GENERATE, params, fields, inputs, "salt") == GOLDEN["action"]
    ignoring = action_id(GENERATE, params, fields, inputs, "salt", ignored_inputs=["rows"])
    assert ignoring == GOLDEN["action_ignoring_rows"]
    assert signature(GENERATE, params, fields, inputs, "accelerator") == GOLDEN["signature"]


@pytest.mark.parametrize("case", GOLDEN["rows"], ids=lambda c: c["digest"][:8])
def test_row_digests_are_frozen(case: dict[str, Any]) -> None:
    row = {k: v.encode() if k == "bytes" and v else v for k, v in case["row"].items()}
    assert row_digest(row, Schema.of(case["schema"])) == case["digest"]


def test_borders_chunks_and_dataset_digests_are_frozen() -> None:
    digests = row_digests(columns_of(numbers(), NUMBERS), NUMBERS, 500)
    starts = borders(digests)
    assert starts == GOLDEN["borders"]
    blob = Digest("0" * 64)
    chunks = [
        ChunkRef(rows_digest(digests[a:b]), blob, b - a, 0)
        for a, b in zip(starts, [*starts[1:], 500], strict=True)
    ]
    assert chunks[0].rows == GOLDEN["first_chunk"]
    assert dataset_digest(Manifest(NUMBERS, tuple(chunks))) == GOLDEN["dataset"]


@dataclass(frozen=True)
class File:
    path: str
    mode: int
    bytes: int
    digest: Digest


def test_identities_of_content_are_frozen() -> None:
    x = digest_bytes(b"x")
    for kind, identity in GOLDEN["content"].items():
        assert content_identity(kind, x) == identity
        raw = kind.encode() + b"\0" + blake3(b"x").digest()
        assert identity == blake3(b"flowmesh/2\0" + raw).hexdigest()
    files = [File("config.json", 0, 1, x), File("bin/run", 0o755, 1, x)]
    for kind, identity in GOLDEN["trees"].items():
        assert tree_identity(kind, files) == tree_identity(kind, files[::-1]) == identity


def names(golden: dict[str, Any]) -> set[str]:
    cases = [c["digest"] for c in (*golden["canonical"], *golden["rows"])]
    single = ("action", "action_ignoring_rows", "signature", "first_chunk", "dataset")
    return {*cases, *(golden[name] for name in single)}


def test_no_name_equals_its_name_in_scheme_1() -> None:
    assert len(names(FORMER)) == len(names(GOLDEN))
    assert not names(FORMER) & names(GOLDEN)


def test_references_are_frozen() -> None:
    assert issue(KEYS, "ns-team-a", 0, "model", digest_bytes(b"x")) == GOLDEN["reference"]
