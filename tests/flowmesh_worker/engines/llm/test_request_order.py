"""The order in which the rows of an action enter an engine."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from flowmesh_store.datasets.chunks import as_single_chunk
from flowmesh_worker.engine_api import DatasetInput, Work
from flowmesh_worker.engines.llm.requests import Backend, Completion, Request
from flowmesh_worker.engines.llm.sampling_run import draw
from flowmesh_worker.engines.tokens import Tokenizing


class Engine:
    """Completes each prompt with its own text."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def complete(self, request: Request, _: Any) -> Completion:
        text = bytes(request.token_ids).decode()
        self.seen.append(text)
        return Completion(text, "stop", 1)


async def test_prompts_that_begin_alike_are_computed_one_after_the_other() -> None:
    """Their answers stay in the order of the rows."""
    texts = [f"{beginning}: {number}" for number in range(3) for beginning in ("one", "two")]
    manifest, blobs = as_single_chunk([{"p": text} for text in texts])
    source = DatasetInput(manifest, tuple(blobs[chunk.blob] for chunk in manifest.chunks))
    work = Work("1", "1", {"prompt": "{{ p }}"}, {}, {"rows": source}, Path("unused"))
    tokenizing = SimpleNamespace(
        encode=lambda rendered, number, style: list(rendered.text.encode()),
        require_min_tokens_fit=lambda *_: None,
    )
    engine = Engine()
    batch = await draw(
        work,
        work.params,
        source,
        cast(Backend, engine),
        cast(Tokenizing, tokenizing),
        lambda *_: None,
    )
    assert engine.seen == sorted(texts)
    assert [completion.text for _, completion in batch] == texts
