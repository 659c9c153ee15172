"""Generates completions for rows; used by ``llm.generate`` and by a judging ``llm.score``.

Every sample of a row becomes a request; one backend batches the requests of many actions. A row
that cannot be rendered or is too long fails its own action before any of its requests is sent.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowmesh_worker.engine_api import DatasetInput, Progress, TreeInput, Usage, Work
from flowmesh_worker.engines.chat_style import ChatStyle
from flowmesh_worker.engines.llm.adapters import ADAPTER
from flowmesh_worker.engines.llm.requests import (
    Backend,
    Completion,
    Request,
    Sampling,
    sample_seed,
)
from flowmesh_worker.engines.prompts import Prompt, Rendered
from flowmesh_worker.engines.tokens import Tokenizing

Key = tuple[bytes, int]
"""Identifies a sample: the rendered request and the sample's number."""


@dataclass(frozen=True, slots=True)
class CompletionSample:
    """One completion to generate; samples with equal keys share a request.

    Attributes:
        row: the row.
        number: of the row in its chunk, from 1.
        index: of the sample in its row, from 0.
        key: identifies the request.
        rendered: the row's prompt.
    """

    row: Mapping[str, Any]
    number: int
    index: int
    key: Key
    rendered: Rendered


@dataclass(frozen=True, slots=True)
class SampledBatch:
    """The samples of an action in the order of its rows, with their completions and prompts."""

    samples: Sequence[CompletionSample]
    completions: Mapping[Key, Completion]
    usage: Usage
    prompts: Mapping[Key, Sequence[int]]

    def __iter__(self) -> Iterator[tuple[CompletionSample, Completion]]:
        """Iterates over (sample, completion) in order."""
        return ((s, self.completions[s.key]) for s in self.samples)


async def draw(
    work: Work,
    params: Mapping[str, Any],
    source: DatasetInput,
    backend: Backend,
    tokenizing: Tokenizing,
    progress: Progress,
) -> SampledBatch:
    """Completes all rows of one action.

    Args:
        work: the action.
        params: the prompt and sampling parameters of ``llm.generate``.
        source: its rows.
        backend: the model.
        tokenizing: of the same model.
        progress: reports tokens.

    Raises:
        AttemptError: the first failure; the action's other requests are cancelled.
    """
    samples, requests = await asyncio.to_thread(_prepare, work, params, source, tokenizing)
    done = await _RequestBatch(backend, progress, requests).all()
    tokens_in = sum(len(r.token_ids) for r in requests.values())
    tokens_out = sum(c.tokens_out for c in done.values())
    usage = Usage(units=tokens_in + tokens_out, tokens_in=tokens_in, tokens_out=tokens_out)
    prompts = {key: r.token_ids for key, r in requests.items()}
    return SampledBatch(samples, done, usage, prompts)


class _RequestBatch:
    """The requests of one action while they run."""

    def __init__(
        self, backend: Backend, progress: Progress, requests: Mapping[Key, Request]
    ) -> None:
        self._backend = backend
        self._progress = progress
        self._requests = requests
        self._tokens = 0
        self._expected = sum(r.sampling.max_tokens for r in requests.values())

    async def all(self) -> dict[Key, Completion]:
        """Runs all requests; the first failure cancels the others and is raised unchanged.

        Prompts that begin alike come one after the other, so that a small cache still has their
        beginning (ADR 99).
        """
        ordered = sorted(self._requests.items(), key=lambda pair: list(pair[1].token_ids))
        tasks = {key: asyncio.create_task(self._one(request)) for key, request in ordered}
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
    work: Work, params: Mapping[str, Any], source: DatasetInput, tokenizing: Tokenizing
) -> tuple[Sequence[CompletionSample], dict[Key, Request]]:
    """Renders and tokenises every row, so that bad rows fail before a request is sent."""
    prompt, sampling, style = Prompt(params), Sampling.from_params(params), ChatStyle(params)
    step_seed, per_row = int(params.get("seed", 0)), int(params.get("samples", 1))
    adapter = work.inputs.get(ADAPTER)
    samples: list[CompletionSample] = []
    requests: dict[Key, Request] = {}
    for number, row in enumerate(source.rows(), 1):
        rendered = prompt.render(row, number)
        name = rendered.canonical()
        token_ids = tokenizing.encode(rendered, number, style=style)
        tokenizing.require_min_tokens_fit(token_ids, sampling.min_tokens, number)
        for index in range(per_row):
            key = (name, index)
            samples.append(CompletionSample(row, number, index, key, rendered))
            if key in requests:
                continue
            requests[key] = Request(
                id=f"{work.attempt_id}/{len(requests)}",
                token_ids=token_ids,
                seed=sample_seed(step_seed, name, index),
                sampling=sampling,
                priority=work.priority,
                cache_salt=work.cache_salt,
                adapter=adapter if isinstance(adapter, TreeInput) else None,
            )
    return samples, requests
