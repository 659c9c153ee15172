"""Finds the choice that a completion names: parses answers to multiple-choice questions.

Pure. A completion that names no choice, or several, has no result: a guess would be scored.
"""

import re
import string
from collections.abc import Sequence

from flowmesh_worker.engines.verifiers.final_choice import final_choice

LETTERS = string.ascii_uppercase
_OPENING = "([{*\"'`" + string.whitespace
_CLOSING = ")]}*\"'`.,;:!?" + string.whitespace  # no minus: "-5" is not "5"


def read_choice(completion: str, choices: Sequence[str]) -> int | None:
    """Returns the index of the choice that a completion names, or None.

    The whole completion may be a letter or a choice's text; else a final letter counts
    (:func:`final_choice`), else the text of a choice, if no other choice's text occurs.

    Args:
        completion: a model's answer.
        choices: the choices' texts; choice 0 is A.
    """
    letters = LETTERS[: len(choices)]
    text = completion.strip()
    whole = _whole(text, choices, letters)
    if whole is not None:
        return whole
    final = final_choice(text, tuple(letters))
    return _mentioned(text, choices) if final is None else letters.index(final)


def _whole(text: str, choices: Sequence[str], letters: str) -> int | None:
    bare = _folded(text)
    named = [i for i, choice in enumerate(choices) if _folded(choice) == bare]
    if len(named) == 1:
        return named[0]
    return letters.index(bare.upper()) if len(bare) == 1 and bare.upper() in letters else None


def _mentioned(text: str, choices: Sequence[str]) -> int | None:
    """Returns the only choice that occurs outside a longer one ("red" in "red wine")."""
    folded = text.casefold()
    spans = {i: _spans(choice, folded) for i, choice in enumerate(choices)}
    own = [
        i
        for i, own_spans in spans.items()
        if any(not _inside(span, spans, i) for span in own_spans)
    ]
    return own[0] if len(own) == 1 else None


def _spans(choice: str, folded: str) -> list[tuple[int, int]]:
    wanted = choice.strip().casefold()
    if not wanted:
        return []
    pattern = rf"(?<!\w){re.escape(wanted)}(?!\w)"
    if wanted[0].isdigit():
        pattern = rf"(?<!-)(?<!\d[.,]){pattern}"  # "5" is not in "-5", nor in "1.5"
    if wanted[-1].isdigit():
        pattern = rf"{pattern}(?![.,]\d)"
    return [m.span() for m in re.finditer(pattern, folded)]


def _inside(span: tuple[int, int], spans: dict[int, list[tuple[int, int]]], own: int) -> bool:
    return any(
        a <= span[0] and span[1] <= b and b - a > span[1] - span[0]
        for i, others in spans.items()
        if i != own
        for a, b in others
    )


def _folded(text: str) -> str:
    return " ".join(text.casefold().lstrip(_OPENING).rstrip(_CLOSING).split())
