"""The engine ``llm.embed``: a vector for every row, from a model's last hidden states.

Rows go through the model one at a time, so that a vector depends only on its own text.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flowmesh_core.dataset.schema import ColumnType, Schema
from flowmesh_core.protocol.messages import EngineVariant
from flowmesh_worker.engine_api import (
    DatasetInput,
    HostSettings,
    Progress,
    Result,
    Rows,
    TreeInput,
    Usage,
    Work,
)
from flowmesh_worker.engines.environment import apply_environment, library_environment
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.llm.backends import embedding_variants
from flowmesh_worker.engines.models.model_facts import ModelFacts, read_facts
from flowmesh_worker.engines.preload import TRANSFORMERS, HostPreload
from flowmesh_worker.engines.prompts import Rendered, RowTemplate
from flowmesh_worker.engines.tokens import Tokenizing

_CAPACITY = 64


class LlmEmbed:
    """The engine ``llm.embed``; see :class:`flowmesh_worker.engine_api.Engine`."""

    def __init__(self) -> None:
        self.capacity = _CAPACITY
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embed")
        self._model: Any = None
        self._pooling = "mean"
        self._tokenizing: Tokenizing | None = None

    @staticmethod
    def variants(device_class: str) -> list[EngineVariant]:
        """Returns the variants that this installation serves on devices of a class."""
        del device_class
        return embedding_variants("llm.embed")

    @staticmethod
    def prepares(params: Mapping[str, Any], *, on_devices: bool) -> HostPreload:
        """Returns what a standby host of this engine imports."""
        del params, on_devices
        return TRANSFORMERS

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Loads the model without its language head."""
        apply_environment(library_environment(settings, batch_invariant=True))
        facts = await asyncio.to_thread(read_facts, components["model"].path)
        loop = asyncio.get_running_loop()
        self._model = await loop.run_in_executor(self._thread, _load, facts, settings)
        self._pooling = str(settings.signature_params.get("pooling", "mean"))
        self._tokenizing = Tokenizing(self._model.tokenizer, facts.context_length + 1)

    async def run(self, work: Work, progress: Progress) -> Result:
        """Embeds all rows of one action."""
        if self._tokenizing is None:
            raise RuntimeError("llm.embed was given work before it was loaded")
        source = work.dataset("rows")
        rows, tokens = await asyncio.to_thread(_prepare, work, source, self._tokenizing)
        output, normalize = (
            str(work.params.get("output", "embedding")),
            work.params.get("normalize"),
        )
        loop = asyncio.get_running_loop()
        known: dict[tuple[int, ...], list[float]] = {}
        out = []
        for done, (row, ids) in enumerate(zip(rows, tokens, strict=True), 1):
            if ids not in known:
                known[ids] = await loop.run_in_executor(
                    self._thread, _vector, self._model, ids, self._pooling, normalize is not False
                )
            out.append({**row, output: known[ids]})
            progress(done, len(rows), "rows")
        used = sum(map(len, known))
        schema = Schema.of({**source.manifest.schema.types(), output: ColumnType.LIST_FLOAT})
        return Result({"rows": Rows(out, schema)}, Usage(units=used, tokens_in=used))

    async def close(self) -> None:
        """Frees the model."""
        self._thread.shutdown(wait=True)
        self._model = None


def _load(facts: ModelFacts, settings: HostSettings) -> Any:
    from flowmesh_worker.engines.llm.torch_model import TorchModel  # noqa: PLC0415 - brings torch

    return TorchModel.load(facts, settings, head="none")


def _vector(model: Any, ids: tuple[int, ...], pooling: str, normalize: bool) -> list[float]:
    from flowmesh_worker.engines.llm.pooling import embed  # noqa: PLC0415 - brings torch

    return embed(model, ids, pooling=pooling, normalize=normalize)


def _prepare(
    work: Work, source: DatasetInput, tokenizing: Tokenizing
) -> tuple[list[dict[str, Any]], list[tuple[int, ...]]]:
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
