"""A backend of ``llm.embed`` on vLLM: texts of many actions, and calls of services, in one batch.

Such an engine instance generates no text. The last digits of a vector depend on the batch.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.engines.errors import engine_failed, host_crashed
from flowmesh_worker.engines.llm.embedding import EmbeddingJob, TokenIds
from flowmesh_worker.engines.llm.vllm_backend import (
    prepare_start,
    start_on_thread,
    stop_async_llm,
)
from flowmesh_worker.engines.models.model_facts import ModelFacts
from flowmesh_worker.engines.row_gather import all_or_none
from flowmesh_worker.engines.tokens import Tokenizing


class VllmEmbedding:
    """See :class:`EmbeddingBackend`; created by :meth:`start`.

    Attributes:
        engine: the running ``AsyncLLM``.
        tokenizing: the model's tokenizer.
    """

    def __init__(self, engine: Any, thread: ThreadPoolExecutor, tokenizing: Tokenizing) -> None:
        """Wraps a running engine, and the thread that started it."""
        self.engine = engine
        self._thread = thread
        self.tokenizing = tokenizing

    @classmethod
    async def start(
        cls, facts: ModelFacts, settings: HostSettings, pooling: str
    ) -> "VllmEmbedding":
        """Loads the model.

        Args:
            facts: the model.
            settings: of the host.
            pooling: ``mean``, ``last``, ``cls``, or ``auto`` for the model's own.

        Raises:
            AttemptError: unplaceable or out of memory, with a remedy.
        """
        engine, thread = await start_on_thread(prepare_start(facts, settings, pooling=pooling))
        tokenizing = Tokenizing(engine.get_tokenizer(), facts.context_length + 1)
        return cls(engine, thread, tokenizing)

    async def embed(
        self, job: EmbeddingJob, done: Callable[[TokenIds], None]
    ) -> dict[TokenIds, list[float]]:
        """See :class:`EmbeddingBackend`."""

        async def one(number: int, ids: TokenIds) -> list[float]:
            vector = await self._vector(job, number, ids)
            done(ids)
            return vector

        parts = (one(number, ids) for number, ids in enumerate(job.texts))
        return dict(zip(job.texts, await all_or_none(parts), strict=True))

    async def _vector(self, job: EmbeddingJob, number: int, ids: TokenIds) -> list[float]:
        from vllm import PoolingParams  # noqa: PLC0415 - loaded by start
        from vllm.inputs.engine import tokens_input  # noqa: PLC0415 - as above
        from vllm.v1.engine.exceptions import EngineDeadError  # noqa: PLC0415 - as above

        prompt = tokens_input(list(ids))
        params = PoolingParams(task="embed", use_activation=job.normalize)
        try:
            async for output in self.engine.encode(
                prompt, params, f"{job.id}/{number}", priority=-job.priority
            ):
                vector: list[float] = output.outputs.data.float().tolist()
                return vector
        except EngineDeadError as e:
            raise host_crashed("vLLM's engine core has ended", e) from e
        except Exception as e:
            raise engine_failed("vLLM failed on a text", e) from e
        raise engine_failed("vLLM failed on a text", RuntimeError("it gave no vector"))

    async def close(self) -> None:
        """See :class:`EmbeddingBackend`."""
        await stop_async_llm(self.engine, self._thread)
