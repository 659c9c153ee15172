"""Workflows of the collection that answer and embed run on a small model, and each row counts."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.collection.cases import verify
from tests.collection.cases_of_models import MODEL_CASES
from tests.collection.reference import Reference, reference
from tests.collection.stand_ins import StandIns

import flowmesh_sdk as fm

pytestmark = [pytest.mark.nightly, pytest.mark.model]


@pytest.fixture(scope="module")
def models(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Returns two small models of different weights."""
    folder = tmp_path_factory.mktemp("models")
    subprocess.run(
        [sys.executable, str(Path(__file__).with_name("printable_models.py")), tiny_model, folder],
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    return {name: folder / name for name in ("base", "second")}


@pytest.fixture(scope="module")
def alone(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    with reference(models, tmp_path_factory.mktemp("reference") / "errors") as found:
        yield found


@pytest.mark.parametrize("name", sorted(MODEL_CASES))
def test_a_workflow_gives_what_transformers_alone_gives(
    name: str,
    client: fm.Client,
    server: StandIns,
    alone: Reference,
    models: dict[str, Path],
) -> None:
    servers = {
        "inference_vllm_http_callback": {"callback": f"{server.url}/results"},
        "rag_query_qdrant": {"qdrant": server.url},
    }
    case = replace(MODEL_CASES[name](alone), params=servers.get(name, {}))
    verify(name, case, client, models)
    if name == "inference_vllm_http_callback":
        assert_each_completion_was_sent_once(server, alone)


def assert_each_completion_was_sent_once(server: StandIns, alone: Reference) -> None:
    sent = [
        {"id": 1, "tags": ["a", "b"], "text": alone.complete("the quick")[0]},
        {"id": 2, "tags": [], "text": alone.complete('a "lazy" dog')[0]},
    ]
    first, changed = server.results[:2], server.results[2:]
    assert sorted(first, key=lambda r: int(r["id"])) == sent
    assert len(changed) == len(sent)
