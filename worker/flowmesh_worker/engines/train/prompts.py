"""From rows to the prompts that a policy completes, with the refusals that belong there.

Nothing here needs a model's weights. A prompt that leaves no room for its completion is left out,
and counted.
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
    """How the model's context is shared.

    Attributes:
        context: tokens that the model reads, prompt and completion together.
        completion: the most tokens of a completion.
        parameter: the parameter that says so, for errors.
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
    """The prompts of all rows, and which of them are held out.

    Args:
        rows: in order.
        params: ``prompt`` or ``messages``; ``seed``, and ``test_size`` where the engine has it.
        tokenizer: the model's.
        room: what a prompt must leave.

    Returns:
        Examples with ``input_ids``, ``prompt`` (a text, or messages) and ``number``, the row's
        place from 0; ``longest`` counts the completion, too.

    Raises:
        AttemptError: bad input; a row cannot be rendered, or none leaves room.
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
    tokens = Tokenizing(tokenizer, sys.maxsize)  # what is too long is left out here
    held = held_out(len(rows), test_size, int(params["seed"]))
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
        parts[number in held].append(example)
    if not parts[0] or (held and not parts[1]):
        which = "held out" if parts[0] else "to learn from"
        raise bad_input(
            f"no row {which} leaves room for a completion: {dropped} of {len(rows)} prompts have"
            f" more than {most} tokens",
            f"shorten the prompts or lower {room.parameter}",
        )
    return Examples(parts[0], parts[1], longest + room.completion, {"rows_dropped": dropped})


def _prompt(rendered: Rendered) -> str | list[dict[str, str]]:
    if rendered.messages:
        return [{"role": role, "content": content} for role, content in rendered.messages]
    return rendered.text
