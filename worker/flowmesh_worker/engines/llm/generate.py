"""``llm.generate``: every row of an action becomes requests, every sample of a row a row.

``run`` is called for many actions at once; their requests meet in one backend, which batches them
whoever sent them. A row that cannot be rendered or read fails its own action before any of its
requests is sent, and touches no other.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowmesh_core.dataset.schema import ColumnType, Schema
from flowmesh_core.protocol.messages import Honours
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
from flowmesh_worker.engines.llm.backends import honoured, start_backend
from flowmesh_worker.engines.llm.model_facts import read_facts
from flowmesh_worker.engines.llm.prompts import Prompt
from flowmesh_worker.engines.llm.requests import (
    Backend,
    Completion,
    Request,
    Sampling,
    sample_seed,
)
from flowmesh_worker.engines.llm.tokens import Tokenizing

_CAPACITY = 64


@dataclass(frozen=True, slots=True)
class _Sample:
    """One output row to make; equal (prompt, seed) share a request."""

    row: Mapping[str, Any]
    index: int
    key: tuple[bytes, int]


class LlmGenerate:
    """The engine. Made by the host; see ``flowmesh_worker.engine_api.Engine``."""

    def __init__(self) -> None:
        """Knows nothing before ``load``."""
        self.capacity = _CAPACITY
        self._backend: Backend | None = None
        self._tokenizing: Tokenizing | None = None

    @staticmethod
    def honours(device_class: str) -> list[Honours]:
        """What this installation can serve on devices of a class; imports nothing heavy."""
        return honoured("llm.generate", device_class)

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Loads the model with the implementation that the signature names."""
        facts = await asyncio.to_thread(read_facts, components["model"].path)
        backend = await start_backend(facts, settings)
        self._backend = backend
        self._tokenizing = Tokenizing(backend.tokenizer, backend.context_length)

    async def run(self, work: Work, progress: Progress) -> Result:
        """Completes all rows of one action."""
        if self._backend is None or self._tokenizing is None:
            raise RuntimeError("llm.generate was given work before it was loaded")
        source = work.dataset("rows")
        samples, requests = await asyncio.to_thread(_prepare, work, source, self._tokenizing)
        done = await _Drawing(self._backend, progress, requests).all()
        output = str(work.params.get("output", "completion"))
        tokens_in = sum(len(r.token_ids) for r in requests.values())
        tokens_out = sum(c.tokens_out for c in done.values())
        return Result(
            {
                "rows": Rows(
                    [_row(s, done[s.key], output) for s in samples], _schema(source, output)
                )
            },
            Usage(units=tokens_in + tokens_out, tokens_in=tokens_in, tokens_out=tokens_out),
        )

    async def close(self) -> None:
        """Frees the model."""
        if self._backend is not None:
            await self._backend.close()
            self._backend = None


class _Drawing:
    """The requests of one action while they run."""

    def __init__(
        self, backend: Backend, progress: Progress, requests: Mapping[tuple[bytes, int], Request]
    ) -> None:
        self._backend = backend
        self._progress = progress
        self._requests = requests
        self._tokens = 0
        self._expected = sum(r.sampling.max_tokens for r in requests.values())

    async def all(self) -> dict[tuple[bytes, int], Completion]:
        """Runs them at once; the first failure stops the others and is raised as it is."""
        tasks = {k: asyncio.create_task(self._one(r)) for k, r in self._requests.items()}
        try:
            return dict(zip(tasks, await asyncio.gather(*tasks.values()), strict=True))
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _one(self, request: Request) -> Completion:
        completion = await self._backend.complete(request, self._grew)
        self._expected -= request.sampling.max_tokens - completion.tokens_out
        self._grew(0)
        return completion

    def _grew(self, tokens: int) -> None:
        self._tokens += tokens
        self._progress(self._tokens, max(self._tokens, self._expected), "tokens")


def _prepare(
    work: Work, source: DatasetInput, tokenizing: Tokenizing
) -> tuple[Sequence[_Sample], dict[tuple[bytes, int], Request]]:
    """Renders and tokenises every row: all refusals come before the first request is sent."""
    prompt, sampling = Prompt(work.params), Sampling.from_params(work.params)
    step_seed, per_row = int(work.params.get("seed", 0)), int(work.params.get("samples", 1))
    adapter = work.inputs.get("adapter")
    samples: list[_Sample] = []
    requests: dict[tuple[bytes, int], Request] = {}
    for number, row in enumerate(source.rows(), 1):
        rendered = prompt.render(row, number)
        name, token_ids = rendered.canonical(), tokenizing.encode(rendered, number)
        for index in range(per_row):
            key = (name, index)
            samples.append(_Sample(row, index, key))
            if key in requests:
                continue
            requests[key] = Request(
                id=f"{work.attempt_id}/{len(requests)}",
                token_ids=token_ids,
                seed=sample_seed(step_seed, name, index),
                sampling=sampling,
                priority=work.priority,
                cache_salt=work.cache_salt,
                adapter=adapter.path if isinstance(adapter, TreeInput) else None,
            )
    return samples, requests


def _row(sample: _Sample, completion: Completion, output: str) -> dict[str, Any]:
    return {
        **sample.row,
        output: completion.text,
        "finish_reason": completion.finish_reason,
        "sample": sample.index,
    }


def _schema(source: DatasetInput, output: str) -> Schema:
    return Schema.of(
        {
            **source.manifest.schema.types(),
            output: ColumnType.STRING,
            "finish_reason": ColumnType.STRING,
            "sample": ColumnType.INT,
        }
    )
