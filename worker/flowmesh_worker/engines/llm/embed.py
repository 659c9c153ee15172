"""The engine ``llm.embed``: a vector for every row, from a model's last hidden states.

With ``implementation: vllm`` it also answers ``/v1/embeddings`` of services.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

from flowmesh_core.dataset.schema import ColumnType, Schema
from flowmesh_core.openai.request import EMBEDDINGS
from flowmesh_core.protocol.messages import EngineVariant
from flowmesh_worker.engine_api import (
    DatasetInput,
    HostSettings,
    Progress,
    Result,
    Rows,
    ServingAnswer,
    ServingCall,
    TreeInput,
    Usage,
    Work,
)
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.llm.backends import embedding_variants
from flowmesh_worker.engines.llm.embedding import EmbeddingBackend, EmbeddingJob, TokenIds
from flowmesh_worker.engines.llm.serving_calls import ServingCalls
from flowmesh_worker.engines.models.model_facts import ModelFacts, read_facts
from flowmesh_worker.engines.preload import HostPreload, preload_of_implementation
from flowmesh_worker.engines.prompts import Rendered, RowTemplate
from flowmesh_worker.engines.tokens import Tokenizing

_CAPACITY = 64
_TRANSFORMERS = "transformers"


class LlmEmbed:
    """The engine ``llm.embed``; see :class:`flowmesh_worker.engine_api.Engine`."""

    def __init__(self) -> None:
        self.capacity = _CAPACITY
        self._backend: EmbeddingBackend | None = None
        self._calls: ServingCalls | None = None

    @staticmethod
    def variants(device_class: str) -> list[EngineVariant]:
        """Returns the variants that this installation serves on devices of a class."""
        del device_class
        return embedding_variants("llm.embed")

    @staticmethod
    def prepares(params: Mapping[str, Any], *, on_devices: bool) -> HostPreload | None:
        """Returns what a standby host of this engine imports."""
        given = {"implementation": _TRANSFORMERS, **params}
        return preload_of_implementation(given, on_devices=on_devices)

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Loads the model with the signature's implementation."""
        facts = await asyncio.to_thread(read_facts, components["model"].path)
        backend = await _start(facts, settings)
        self._backend, self._calls = backend, ServingCalls.of_backend(backend, (EMBEDDINGS,))

    async def run(self, work: Work, progress: Progress) -> Result:
        """Embeds all rows of one action."""
        if self._backend is None:
            raise RuntimeError("llm.embed was given work before it was loaded")
        source = work.dataset("rows")
        rows, tokens = await asyncio.to_thread(_prepare, work, source, self._backend.tokenizing)
        repeated, done = Counter(tokens), 0

        def text_done(ids: TokenIds) -> None:
            nonlocal done
            done += repeated[ids]
            progress(done, len(rows), "rows")

        job = EmbeddingJob(
            id=work.attempt_id,
            texts=list(repeated),
            normalize=work.params.get("normalize") is not False,
            priority=work.priority,
        )
        vectors = await self._backend.embed(job, text_done)
        output = str(work.params.get("output", "embedding"))
        out = [{**row, output: vectors[ids]} for row, ids in zip(rows, tokens, strict=True)]
        used = sum(map(len, repeated))
        schema = Schema.of({**source.manifest.schema.types(), output: ColumnType.LIST_FLOAT})
        return Result({"rows": Rows(out, schema)}, Usage(units=used, tokens_in=used))

    def serves(self) -> tuple[tuple[str, ...], int]:
        """Returns the paths that the loaded engine answers: none without vLLM. See ``Serves``."""
        return ((), 0) if self._calls is None else (self._calls.paths, self._calls.calls_max)

    async def answer(self, call: ServingCall) -> ServingAnswer:
        """Answers a call of a service beside the attempts. See ``Serves``."""
        if self._calls is None:
            raise RuntimeError("llm.embed was given a call that it does not answer")
        return await self._calls.answer(call)

    def stream(self, call: ServingCall) -> AsyncIterator[bytes | ServingAnswer]:
        """Refuses a call, as embeddings have no streams. See ``Serves``."""
        if self._calls is None:
            raise RuntimeError("llm.embed was given a call that it does not answer")
        return self._calls.stream(call)

    async def close(self) -> None:
        """Frees the model."""
        if self._backend is not None:
            await self._backend.close()
            self._backend = self._calls = None


async def _start(facts: ModelFacts, settings: HostSettings) -> EmbeddingBackend:
    if settings.signature_params.get("implementation", _TRANSFORMERS) != _TRANSFORMERS:
        from flowmesh_worker.engines.llm.vllm_embedding import (  # noqa: PLC0415 - one of the two
            VllmEmbedding,
        )

        pooling = str(settings.signature_params.get("pooling", "mean"))
        return await VllmEmbedding.start(facts, settings, pooling)
    from flowmesh_worker.engines.llm.torch_embedding import (  # noqa: PLC0415 - one of the two
        TorchEmbedding,
    )

    return await TorchEmbedding.start(facts, settings)


def _prepare(
    work: Work, source: DatasetInput, tokenizing: Tokenizing
) -> tuple[list[dict[str, Any]], list[TokenIds]]:
    template, column = work.params.get("text"), work.params.get("column")
    if (template is None) == (column is None):
        raise bad_input("with takes either text or column", "give exactly one of the two")
    compiled = RowTemplate(template, "text") if template is not None else None
    rows, tokens = source.rows(), []
    for number, row in enumerate(rows, 1):
        text = compiled.render(row, number) if compiled else _text(row, str(column), number)
        tokens.append(tuple(tokenizing.encode(Rendered(text=text), number)))
    return rows, tokens


def _text(row: Mapping[str, Any], column: str, number: int) -> str:
    value = row.get(column)
    if isinstance(value, str):
        return value
    what = "has no text in" if column in row else "has no column"
    raise bad_input(
        f"row {number} of this chunk {what} {column!r}",
        f"the columns are {', '.join(sorted(row))}; with.text renders other types",
    )
