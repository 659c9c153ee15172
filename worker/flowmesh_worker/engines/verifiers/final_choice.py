"""The choice that an answer to a multiple-choice question settles on.

What is said outright counts first (``the answer is (B)``), the last time that it is said; then an
answer that begins with a label (``B``, ``B) Paris``, ``(B)``); then the last label that is set off
by brackets, or by a full stop or colon behind it. A label within a sentence (the article in ``A
cat``) is no answer.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

LABELS = tuple("ABCDEFGHIJ")
"""The labels where a check names none."""


@lru_cache(maxsize=64)
def _patterns(labels: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    any_label = "|".join(re.escape(label) for label in sorted(labels, key=len, reverse=True))
    label, opened = rf"({any_label})(?!\w)", r"[\s*_(\[{\"'$]*"
    return (
        re.compile(rf"(?i:\banswer\b|\bchoice\b|\boption\b)(?i:\s+is)?\s*[:=]?{opened}{label}"),
        re.compile(rf"\A{opened}{label}(?=[)\]}}.:,*_\"'$]|\s*\Z|\s*\n)"),
        re.compile(rf"(?<!\w)(?:[(\[{{]\s*{label}\s*[)\]}}]|\*\*{label}\*\*|{label}[.:](?!\w))"),
    )


def final_choice(text: str, labels: Sequence[str] = LABELS) -> str | None:
    """The label that the text settles on, or None where it settles on none."""
    said, begun, set_off = _patterns(tuple(labels))
    for pattern, at in ((said, -1), (begun, 0), (set_off, -1)):
        found = [next(g for g in m.groups() if g) for m in pattern.finditer(text)]
        if found:
            return found[at]
    return None
