"""Frozen names. A failure here means that every cached result in the world is lost: it needs a new
version of the scheme, never new vectors."""

import json
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
    digest_bytes,
    digest_value,
    effective_params,
    signature,
)
from flowmesh_core.sharing import issue
from flowmesh_core.units import Digest

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("golden.json").read_text())
NUMBERS = Schema.of({"n": "int", "text": "string"})


def numbers() -> list[dict[str, Any]]:
    return [{"n": n, "text": f"row {n}"} for n in range(500)]


def test_the_scheme_is_the_one_the_vectors_are_of() -> None:
    assert GOLDEN["scheme"] == SCHEME


@pytest.mark.parametrize("case", GOLDEN["canonical"], ids=lambda c: c["form"][:40])
def test_canonical_forms_are_frozen(case: dict[str, Any]) -> None:
    assert canonical_bytes(case["value"]).decode() == case["form"]
    assert digest_value("test", case["value"]) == case["digest"]


def test_a_digest_is_blake3_of_scheme_tag_and_form() -> None:
    assert digest_value("test", {"a": 1}) == blake3(b'flowmesh/1\0test\0{"a":1}').hexdigest()


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


def test_references_are_frozen() -> None:
    assert issue(b"k" * 32, "ns-team-a", "model", digest_bytes(b"x")) == GOLDEN["reference"]
