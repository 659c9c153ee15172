"""Services of real models on a cluster: a real API server, operator, worker, vLLM and router."""

import math
from pathlib import Path

import openai
import pytest
from tests.flowmesh_operator.api_server import until
from tests.flowmesh_operator.test_services_on_api_server import Cluster, cluster

from flowmesh_cli.connection.client import ApiClient
from flowmesh_sdk.local_inputs import upload

pytestmark = [pytest.mark.nightly, pytest.mark.model]
__all__ = ["cluster"]


@pytest.fixture(scope="module")
def reference(cluster: Cluster, tiny_model: Path) -> str:
    """Uploads a tiny model to the services' namespace; returns its reference."""
    url, token = f"http://127.0.0.1:{cluster.made.port}", cluster.made.server.token_of("admin")
    return upload(ApiClient.at(url, token), tiny_model, "model", cluster.team).reference


def test_a_service_of_one_embedding_engine_answers_embeddings(
    cluster: Cluster, reference: str
) -> None:
    component = {"uses": "llm.embed", "inputs": {"model": "inputs.base"}}
    inputs = {"base": {"model": reference}}
    cluster.made.worker("local-llm", "--memory-mib", "6144", "--cpus", "2")
    cluster.apply("vectors", {"llm": component}, inputs=inputs, openai={"model": "vectors"})
    words = ("wait", "--for=condition=Ready", "fms/vectors", "-n", cluster.team, "--timeout=400s")
    done = cluster.made.server.kubectl(*words, ok=False)
    assert not done.returncode, f"{done.stderr}: {cluster.status('vectors')}"
    token = cluster.token("vectors").token

    def vectors(*texts: str) -> list[list[float]]:
        with cluster.client(token) as client:
            answer = client.embeddings.create(model="vectors", input=list(texts))
            return [item.embedding for item in answer.data]

    def answers() -> bool:
        try:
            return bool(vectors("the fox"))
        except openai.APIStatusError:
            return False

    until(answers, "the router answers", 60)
    first, second = vectors("the fox", "a dog")
    assert len(first) == 64
    assert math.hypot(*first) == pytest.approx(1, rel=1e-4)
    assert first != second
    with cluster.client(token) as client, pytest.raises(openai.NotFoundError, match="embeddings"):
        client.chat.completions.create(model="vectors", messages=[{"role": "user", "content": "x"}])
