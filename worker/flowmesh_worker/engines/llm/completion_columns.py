"""The columns that ``llm.generate`` adds: completion, reasoning, transcript."""

from collections.abc import Mapping
from typing import Any

from flowmesh_core.dataset.schema import ColumnType, Schema
from flowmesh_worker.engine_api import DatasetInput
from flowmesh_worker.engines.chat_messages import ASSISTANT, Message
from flowmesh_worker.engines.llm.requests import Completion
from flowmesh_worker.engines.llm.sampling_run import CompletionSample, SampledBatch
from flowmesh_worker.engines.tokens import Tokenizing

OPENED, CLOSED = "<think>", "</think>"
_TAIL_TOKENS = 12
"""Tokens at a prompt's end that may open the reasoning."""


def split_reasoning(text: str, *, is_open: bool) -> tuple[str | None, str]:
    """Returns what a completion has between ``<think>`` and ``</think>``, and the rest.

    Args:
        text: the completion.
        is_open: whether the prompt ended with ``<think>``.

    Returns:
        None and the whole text where there is no reasoning; the reasoning and an empty text where
        it does not end.
    """
    begun = text.lstrip().removeprefix(OPENED)
    is_open = is_open or begun != text.lstrip()
    reasoning, closed, answer = begun.partition(CLOSED)
    if closed:
        return reasoning.strip(), answer.lstrip()
    return (reasoning.strip(), "") if is_open else (None, text)


class CompletionColumns:
    """Writes the output rows of one action."""

    def __init__(self, params: Mapping[str, Any], tokenizing: Tokenizing) -> None:
        """Reads the names of the columns.

        Args:
            params: of the action.
            tokenizing: of the model.
        """
        self._output = str(params.get("output", "completion"))
        self._reasoning = params.get("reasoning")
        self._transcript = params.get("transcript")
        self._tokenizing = tokenizing

    def rows(self, drawn: SampledBatch) -> list[dict[str, Any]]:
        """Returns a row for each sample."""
        return [self._row(sample, completion, drawn) for sample, completion in drawn]

    def schema(self, source: DatasetInput) -> Schema:
        """Returns the schema of the rows."""
        added = {
            self._output: ColumnType.STRING,
            "finish_reason": ColumnType.STRING,
            "sample": ColumnType.INT,
        }
        if self._reasoning is not None:
            added[str(self._reasoning)] = ColumnType.STRING
        if self._transcript is not None:
            added[str(self._transcript)] = ColumnType.JSON
        return Schema.of({**source.manifest.schema.types(), **added})

    def _row(
        self, sample: CompletionSample, completion: Completion, drawn: SampledBatch
    ) -> dict[str, Any]:
        answer = completion.text
        more: dict[str, Any] = {}
        if self._reasoning is not None:
            tail = self._tokenizing.last_text(drawn.prompts[sample.key], _TAIL_TOKENS)
            reasoning, answer = split_reasoning(answer, is_open=tail.rstrip().endswith(OPENED))
            more[str(self._reasoning)] = reasoning
        if self._transcript is not None:
            asked = sample.rendered.messages[sample.rendered.begins_at :]
            chat = (*asked, Message(ASSISTANT, answer))
            more[str(self._transcript)] = [m.as_dict() for m in chat]
        return {
            **sample.row,
            self._output: answer,
            "finish_reason": completion.finish_reason,
            "sample": sample.index,
            **more,
        }
