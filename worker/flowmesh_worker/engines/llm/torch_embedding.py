"""A backend of ``llm.embed`` on transformers: one text at a time.

So a vector depends only on its own text.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.engines.environment import apply_environment, library_environment
from flowmesh_worker.engines.errors import unplaceable
from flowmesh_worker.engines.llm.embedding import EmbeddingJob, TokenIds
from flowmesh_worker.engines.models.model_facts import ModelFacts
from flowmesh_worker.engines.tokens import Tokenizing


class TorchEmbedding:
    """See :class:`EmbeddingBackend`; created by :meth:`start`."""

    def __init__(
        self, model: Any, thread: ThreadPoolExecutor, pooling: str, tokenizing: Tokenizing
    ) -> None:
        """Wraps a ``TorchModel`` without its head, used on one thread only."""
        self._model = model
        self._thread = thread
        self._pooling = pooling
        self.tokenizing = tokenizing

    @classmethod
    async def start(cls, facts: ModelFacts, settings: HostSettings) -> "TorchEmbedding":
        """Loads the model without its language head.

        Raises:
            AttemptError: unplaceable, or bad input, with a remedy.
        """
        pooling = str(settings.signature_params.get("pooling", "mean"))
        if pooling == "auto":
            raise unplaceable(
                "pooling auto is read by vLLM alone",
                "set with.implementation: vllm, or with.pooling: mean, last or cls",
            )
        apply_environment(library_environment(settings, batch_invariant=True))
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embed")
        loop = asyncio.get_running_loop()
        model = await loop.run_in_executor(thread, _load, facts, settings)
        tokenizing = Tokenizing(model.tokenizer, facts.context_length + 1)
        return cls(model, thread, pooling, tokenizing)

    async def embed(
        self, job: EmbeddingJob, done: Callable[[TokenIds], None]
    ) -> dict[TokenIds, list[float]]:
        """See :class:`EmbeddingBackend`."""
        loop = asyncio.get_running_loop()
        found = {}
        for ids in job.texts:
            found[ids] = await loop.run_in_executor(
                self._thread, _vector, self._model, ids, self._pooling, job.normalize
            )
            done(ids)
        return found

    async def close(self) -> None:
        """See :class:`EmbeddingBackend`."""
        self._thread.shutdown(wait=True)
        self._model = None


def _load(facts: ModelFacts, settings: HostSettings) -> Any:
    from flowmesh_worker.engines.llm.torch_model import TorchModel  # noqa: PLC0415 - brings torch

    return TorchModel.load(facts, settings, head="none")


def _vector(model: Any, ids: TokenIds, pooling: str, normalize: bool) -> list[float]:
    from flowmesh_worker.engines.llm.pooling import embed  # noqa: PLC0415 - brings torch

    return embed(model, ids, pooling=pooling, normalize=normalize)
