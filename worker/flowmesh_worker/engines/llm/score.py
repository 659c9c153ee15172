"""The engine ``llm.score``: a number or a label for every row.

It is a reward, the log-probability of a completion or of several choices, or the verdict of a
judging model. Rewards and log-probabilities are computed one sequence at a time; a judge generates
as ``llm.generate`` does, greedily.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowmesh_core.dataset.schema import ColumnType, Schema
from flowmesh_core.protocol.messages import EngineVariant
from flowmesh_worker.engine_api import (
    HostSettings,
    Metrics,
    Progress,
    Result,
    Rows,
    TreeInput,
    Usage,
    Work,
)
from flowmesh_worker.engines.environment import apply_environment, library_environment
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.llm.adapters import ADAPTER, ADAPTER_WEIGHTS
from flowmesh_worker.engines.llm.backends import scoring_variants, start_backend
from flowmesh_worker.engines.llm.sampling_run import draw
from flowmesh_worker.engines.llm.sequences import Continuations, RewardText
from flowmesh_worker.engines.llm.verdicts import Verdicts
from flowmesh_worker.engines.models.model_facts import ModelFacts, read_facts
from flowmesh_worker.engines.models.safetensors_header import head_labels
from flowmesh_worker.engines.preload import TRANSFORMERS, HostPreload, preload_of_implementation
from flowmesh_worker.engines.tokens import Tokenizing

if TYPE_CHECKING:
    from flowmesh_worker.engines.llm.requests import Backend

_CAPACITY = 64
_JUDGE_PARAMS = (
    *("prompt", "messages", "messagesFrom", "messagesFormat", "system"),
    *("maxTokens", "stop", "seed", "jsonSchema"),
)


@dataclass(frozen=True, slots=True)
class _Scored:
    """The rows of an action with the added columns."""

    rows: Sequence[Mapping[str, Any]]
    added: Mapping[str, ColumnType]
    tokens: int
    verdicts: Verdicts | None = None


class LlmScore:
    """The engine ``llm.score``; see :class:`flowmesh_worker.engine_api.Engine`."""

    def __init__(self) -> None:
        self.capacity = _CAPACITY
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="score")
        self._facts: ModelFacts | None = None
        self._tokenizing: Tokenizing | None = None
        self._model: Any = None
        self._judge: Backend | None = None

    @staticmethod
    def variants(device_class: str) -> list[EngineVariant]:
        """Returns the variants that this installation serves on devices of a class."""
        del device_class
        return scoring_variants("llm.score")

    @staticmethod
    def prepares(params: Mapping[str, Any], *, on_devices: bool) -> HostPreload | None:
        """Returns what a standby host imports: only a judge runs on vLLM."""
        judges = params.get("method") == "judge"
        return preload_of_implementation(params, on_devices=on_devices) if judges else TRANSFORMERS

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Loads the model with the head that the method needs."""
        self._facts = facts = await asyncio.to_thread(read_facts, components["model"].path)
        method = str(settings.signature_params["method"])
        if method == "judge":
            self._judge = await start_backend(facts, settings)
            self._tokenizing = Tokenizing(self._judge.tokenizer, self._judge.context_length)
            return
        if method == "reward" and not facts.scores and ADAPTER not in settings.mixed:
            raise bad_input(
                "the model has no head that scores a sequence",
                "use a model of train.reward, or another ...ForSequenceClassification model",
            )
        apply_environment(library_environment(settings, batch_invariant=True))
        loop = asyncio.get_running_loop()
        head = "score" if method == "reward" else "language"
        self._model = await loop.run_in_executor(self._thread, _load, facts, settings, head)
        self._tokenizing = Tokenizing(self._model.tokenizer, facts.context_length)

    async def run(self, work: Work, progress: Progress) -> Result:
        """Scores all rows of one action."""
        if self._facts is None or self._tokenizing is None:
            raise RuntimeError("llm.score was given work before it was loaded")
        method = work.params["method"]
        if method == "judge":
            scored = await self._judged(work, progress)
        elif method == "reward":
            scored = await self._rewarded(work, progress)
        else:
            scored = await self._weighed(work, progress)
        output = _output(work)
        schema = Schema.of({**work.dataset("rows").manifest.schema.types(), **scored.added})
        return Result(
            {
                "rows": Rows(scored.rows, schema),
                "metrics": Metrics(_means(scored, output)),
                "counts": Metrics(_counts(scored, output)),
            },
            Usage(units=scored.tokens, tokens_in=scored.tokens),
        )

    async def close(self) -> None:
        """Frees the model."""
        self._thread.shutdown(wait=True)
        self._model = None
        if self._judge is not None:
            await self._judge.close()
            self._judge = None

    async def _rewarded(self, work: Work, progress: Progress) -> _Scored:
        text, tokenizing = RewardText(work.params), self._tokenized()
        source = work.dataset("rows").rows()
        ids = await asyncio.to_thread(
            lambda: [tuple(text.tokens(tokenizing, row, n)) for n, row in enumerate(source, 1)]
        )
        adapter = self._adapter(work)
        if not self._scores(adapter):
            raise bad_input(
                "neither the model nor the adapter has a head that scores a sequence",
                "use a model of train.reward, or another ...ForSequenceClassification model",
            )
        found: dict[tuple[int, ...], float] = {}
        for done, one in enumerate(ids, 1):
            if one not in found:
                found[one] = await self._on_thread(_reward, self._model, adapter, one)
            progress(done, len(ids), "rows")
        rows = [
            {**row, _output(work): found[one], "tokens": len(one)}
            for row, one in zip(source, ids, strict=True)
        ]
        added = {_output(work): ColumnType.FLOAT, "tokens": ColumnType.INT}
        return _Scored(rows, added, sum(map(len, found)))

    async def _weighed(self, work: Work, progress: Progress) -> _Scored:
        continuations, tokenizing = Continuations(work.params), self._tokenized()
        source = work.dataset("rows").rows()
        texts = [continuations.of(row, number) for number, row in enumerate(source, 1)]
        normalize, adapter = str(work.params.get("normalize", "none")), self._adapter(work)
        found: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
        rows: list[dict[str, Any]] = []
        for number, (row, (prompt, ends)) in enumerate(zip(source, texts, strict=True), 1):
            values, lengths = [], []
            for end in ends:
                given, target = await asyncio.to_thread(
                    tokenizing.continuation, prompt, end, number
                )
                key = (tuple(given), tuple(target))
                if key not in found:
                    found[key] = await self._on_thread(_weigh, self._model, adapter, *key)
                values.append(found[key] / _length(normalize, end, target))
                lengths.append(len(target))
            several = continuations.choices is not None
            rows.append({**row, _output(work): values if several else values[0],
                         "tokens": lengths if several else lengths[0]})  # fmt: skip
            progress(number, len(source), "rows")
        kinds = (ColumnType.LIST_FLOAT, ColumnType.LIST_INT)
        kind, count = (
            kinds if continuations.choices is not None else (ColumnType.FLOAT, ColumnType.INT)
        )
        used = sum(len(given) + len(target) for given, target in found)
        return _Scored(rows, {_output(work): kind, "tokens": count}, used)

    async def _judged(self, work: Work, progress: Progress) -> _Scored:
        verdicts = await asyncio.to_thread(Verdicts, work.params)
        if self._judge is None:
            raise RuntimeError("llm.score was given a judge's work, but loaded no judge")
        judge_params = {n: work.params[n] for n in _JUDGE_PARAMS if work.params.get(n) is not None}
        drawn = await draw(
            work,
            {**judge_params, "temperature": 0.0},
            work.dataset("rows"),
            self._judge,
            self._tokenized(),
            progress,
        )
        rows = await asyncio.to_thread(
            lambda: [
                {**s.row, _output(work): verdicts.read(c.text), "verdict": c.text} for s, c in drawn
            ]
        )
        kind = ColumnType.STRING if verdicts.labels else ColumnType.FLOAT
        added = {_output(work): kind, "verdict": ColumnType.STRING}
        return _Scored(rows, added, drawn.usage.units, verdicts)

    def _adapter(self, work: Work) -> TreeInput | None:
        found = work.inputs.get(ADAPTER)
        return found if isinstance(found, TreeInput) else None

    def _scores(self, adapter: TreeInput | None) -> bool:
        if self._facts is not None and self._facts.scores:
            return True
        return adapter is not None and head_labels(adapter.path, ADAPTER_WEIGHTS) > 0

    def _tokenized(self) -> Tokenizing:
        if self._tokenizing is None:
            raise RuntimeError("llm.score is not loaded")
        return self._tokenizing

    async def _on_thread(self, function: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)


def _output(work: Work) -> str:
    return str(work.params.get("output", "score"))


def _length(normalize: str, text: str, target: Sequence[int]) -> int:
    return {"none": 1, "tokens": len(target), "bytes": len(text.encode())}[normalize]


def _means(scored: _Scored, output: str) -> dict[str, Any]:
    """Returns the mean or the share of each label, and the number of rows with a value.

    Where no row has a value they are null: there is nothing to take the mean of.
    """
    values = [row[output] for row in scored.rows if row[output] is not None]
    if scored.added[output] is ColumnType.LIST_FLOAT:
        return {"count": len(values)}
    if scored.verdicts is not None and scored.verdicts.labels:
        shares = {
            f"share.{x}": values.count(x) / len(values) if values else None
            for x in scored.verdicts.labels
        }
        return shares | {"count": len(values)}
    return {"mean": math.fsum(values) / len(values) if values else None, "count": len(values)}


def _counts(scored: _Scored, output: str) -> dict[str, int]:
    rows = len(scored.rows)
    if scored.verdicts is None:
        return {"rows": rows, "tokens": scored.tokens}
    values = [row[output] for row in scored.rows]
    labels = {f"label.{x}": values.count(x) for x in scored.verdicts.labels}
    return {"rows": rows, "unparsed": values.count(None), "tokens": scored.tokens, **labels}


def _load(facts: ModelFacts, settings: HostSettings, head: Any) -> Any:
    from flowmesh_worker.engines.llm.torch_model import TorchModel  # noqa: PLC0415 - brings torch

    return TorchModel.load(facts, settings, head=head)


def _reward(model: Any, adapter: TreeInput | None, ids: Sequence[int]) -> float:
    from flowmesh_worker.engines.llm.scoring import reward  # noqa: PLC0415 - brings torch

    return reward(model, adapter, ids)


def _weigh(
    model: Any, adapter: TreeInput | None, given: Sequence[int], target: Sequence[int]
) -> float:
    from flowmesh_worker.engines.llm.scoring import log_probability  # noqa: PLC0415 - brings torch

    return log_probability(model, adapter, given, target)
