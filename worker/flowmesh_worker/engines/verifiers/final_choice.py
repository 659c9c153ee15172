"""Finds the final choice in an answer to a multiple-choice question.

An explicit statement counts first (``the answer is (B)``; the last one if there are several); then
an answer that begins with a label (``B``, ``B) Paris``, ``(B)``); then the last label in brackets
or before a full stop or colon. A label within a sentence (the article in ``A cat``) does not count.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

LABELS = tuple("ABCDEFGHIJ")
"""The labels if a check names none."""


@lru_cache(maxsize=64)
def _patterns(labels: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    any_label = "|".join(re.escape(label) for label in sorted(labels, key=len, reverse=True))
    label, prefix = rf"({any_label})(?!\w)", r"[\s*_(\[{\"'$]*"
    return (
        re.compile(rf"(?i:\banswer\b|\bchoice\b|\boption\b)(?i:\s+is)?\s*[:=]?{prefix}{label}"),
        re.compile(rf"\A{prefix}{label}(?=[)\]}}.:,*_\"'$]|\s*\Z|\s*\n)"),
        re.compile(rf"(?<!\w)(?:[(\[{{]\s*{label}\s*[)\]}}]|\*\*{label}\*\*|{label}[.:](?!\w))"),
    )


def final_choice(text: str, labels: Sequence[str] = LABELS) -> str | None:
    """Returns the final label of the text, or None."""
    stated, leading, marked = _patterns(tuple(labels))
    for pattern, at in ((stated, -1), (leading, 0), (marked, -1)):
        found = [next(g for g in m.groups() if g) for m in pattern.finditer(text)]
        if found:
            return found[at]
    return None
