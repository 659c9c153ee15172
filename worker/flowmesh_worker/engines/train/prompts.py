"""Turns rows into the prompts that a policy completes.

Nothing here needs a model's weights. A prompt that leaves no room for its completion is dropped and
counted.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.prompts import Prompt, Rendered
from flowmesh_worker.engines.tokens import Tokenizing
from flowmesh_worker.engines.train.examples import Examples, held_out, require_rows


@dataclass(frozen=True, slots=True)
class ContextBudget:
    """How the model's context is divided between prompt and completion.

    Attributes:
        context: the maximum tokens of prompt and completion together.
        completion: the maximum tokens of a completion.
        parameter: the parameter that sets ``completion``, for errors.
    """

    context: int
    completion: int
    parameter: str


def read_prompts(
    rows: Sequence[Mapping[str, Any]],
    params: Mapping[str, Any],
    tokenizer: Any,
    room: ContextBudget,
) -> Examples:
    """Renders the prompts of all rows and splits them.

    Args:
        rows: in order.
        params: ``prompt`` or ``messages``; ``seed``, and ``test_size`` if the engine has it.
        tokenizer: the model's.
        room: the context's division.

    Returns:
        Examples with ``input_ids``, ``prompt`` (a text, or messages) and ``number``, the row's
        index; ``longest`` includes the completion.

    Raises:
        AttemptError: bad input; a row cannot be rendered, or all prompts are too long.
    """
    test_size = float(params.get("test_size", 0.0))
    require_rows(rows, test_size)
    most = room.context - room.completion
    if most < 1:
        raise bad_input(
            f"with.{room.parameter}: {room.completion} tokens are all that the model reads"
            f" ({room.context}), and leave none for a prompt",
            f"lower {room.parameter}, or use a model with a longer context",
        )
    template = Prompt(params)
    tokens = Tokenizing(tokenizer, sys.maxsize)  # long prompts are dropped here, not refused
    test_rows = held_out(len(rows), test_size, int(params["seed"]))
    parts: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    longest = dropped = 0
    for number, row in enumerate(rows):
        rendered = template.render(row, number + 1)
        ids = tokens.encode(rendered, number + 1)
        if len(ids) > most:
            dropped += 1
            continue
        longest = max(longest, len(ids))
        example = {"input_ids": ids, "prompt": _prompt(rendered), "number": number}
        parts[number in test_rows].append(example)
    if not parts[0] or (test_rows and not parts[1]):
        which = "held out" if parts[0] else "to learn from"
        raise bad_input(
            f"no row {which} leaves room for a completion: {dropped} of {len(rows)} prompts have"
            f" more than {most} tokens",
            f"shorten the prompts or lower {room.parameter}",
        )
    return Examples(parts[0], parts[1], longest + room.completion, {"rows_dropped": dropped})


def _prompt(rendered: Rendered) -> str | list[dict[str, Any]]:
    if rendered.messages:
        return [m.for_template() for m in rendered.messages]
    return rendered.text
