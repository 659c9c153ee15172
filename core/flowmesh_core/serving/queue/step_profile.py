"""How long a step of an engine takes, by the sequences that decode and the prompt tokens in it.

An engine host measures each step of its engine and asks how many sequences keep a target of time
per token. Steps are kept as means of cells, one for steps of about the same size, so memory is
bounded and a steady load does not make the host forget what other loads took. The time is taken as
linear in both numbers; the length of contexts is not seen.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import msgspec

TOKEN_MARGIN = 0.9
"""The share of a token target that is used by prediction."""
ENOUGH_STEPS = 8
"""Steps of about one size before their mean counts."""
_LEAST_WEIGHT = 0.02
"""The newest step's weight in the mean of its cell, once that has 50 steps."""
_MOST_TIMES = 2.0
"""One step counts as at most so many times its cell's mean: the system may have stopped it."""
_MEMORY = 0.998
"""How much a step counts after the next one, in the prompt tokens of a decoded token."""
_BEYOND_SEEN = 2
"""So many times the sequences that were measured may run: far from its points a line is a guess."""
_POINTS = 2
"""Numbers of sequences that a line needs."""
_SINGULAR = 1e-12

_Cell = tuple[int, int]


class StepFit(msgspec.Struct, frozen=True):
    """The seconds of a step, as a line in two numbers; no part is below 0.

    Attributes:
        base_s: of any step.
        sequence_s: more for each sequence that decodes.
        prompt_token_s: more for each prompt token that is computed.
    """

    base_s: float
    sequence_s: float
    prompt_token_s: float

    def seconds(self, sequences: float, prompt_tokens: float = 0.0) -> float:
        """Returns the seconds of a step."""
        return self.base_s + self.sequence_s * sequences + self.prompt_token_s * prompt_tokens


@dataclass(slots=True)
class _Mean:
    """The steps of about one size, in the mean."""

    steps: int = 0
    sequences: float = 0.0
    prompt_tokens: float = 0.0
    seconds: float = 0.0

    def add(self, sequences: int, prompt_tokens: int, seconds: float) -> None:
        if self.steps >= ENOUGH_STEPS:
            seconds = min(seconds, _MOST_TIMES * self.seconds)
        self.steps += 1
        weight = max(1 / self.steps, _LEAST_WEIGHT)
        self.sequences += weight * (sequences - self.sequences)
        self.prompt_tokens += weight * (prompt_tokens - self.prompt_tokens)
        self.seconds += weight * (seconds - self.seconds)


class StepProfile:
    """The measured steps of one engine."""

    def __init__(self) -> None:
        self._cells: dict[_Cell, _Mean] = {}
        self._decoded = 0.0
        self._prefilled = 0.0

    def observe(self, sequences: int, prompt_tokens: int, seconds: float) -> None:
        """Records a step.

        Args:
            sequences: that decoded in it.
            prompt_tokens: that were computed in it.
            seconds: from the end of the step before, or from when the idle engine got work; a step
                of neither, or with a time not above 0, is left out.
        """
        if seconds <= 0 or not (sequences or prompt_tokens):
            return
        cell = _bucket(sequences), _bucket(prompt_tokens)
        self._cells.setdefault(cell, _Mean()).add(sequences, prompt_tokens, seconds)
        if sequences:
            self._decoded = _MEMORY * self._decoded + sequences
            self._prefilled = _MEMORY * self._prefilled + prompt_tokens

    @property
    def prompt_tokens_per_token(self) -> float:
        """Prompt tokens that were computed beside each decoded token, in the mean of late."""
        return self._prefilled / self._decoded if self._decoded else 0.0

    def fit(self) -> StepFit | None:
        """Returns the line that fits best by relative error.

        None until steps without prompt tokens were measured with two different numbers of
        sequences: with one, nothing tells a step's base from the part of each sequence.
        """
        if len(self._decoding()) < _POINTS:
            return None
        rows = [(w, (1.0, m.sequences, m.prompt_tokens), m.seconds) for w, m in self._weighted()]
        return _least_squares(rows)

    def sequences_within(self, seconds: float, most: int) -> int:
        """Returns how many sequences may run for steps to take at most so long; at least 1.

        Prompts that come with the sequences, in the ratio of late, count as part of each step. At
        most twice the number that was measured: a larger one is allowed once that has run.

        Args:
            seconds: of a step.
            most: the answer's bound.
        """
        decoding = self._decoding()
        if not decoding:
            return min(most, _BEYOND_SEEN)
        seen = round(decoding[-1].sequences)
        within = max(1, min(most, _BEYOND_SEEN * seen))
        fit = self.fit()
        if fit is None:  # one number of sequences: it is within the bound, or in proportion less
            fits = decoding[-1].seconds <= seconds
            return within if fits else max(1, int(seen * seconds / decoding[-1].seconds))
        prompts = self.prompt_tokens_per_token
        return max(
            1,
            bisect_right(range(1, within + 1), seconds, key=lambda n: fit.seconds(n, n * prompts)),
        )

    def _decoding(self) -> list[_Mean]:
        """Returns the cells of steps without prompts that have enough steps, ascending."""
        cells = ((sequences, m) for (sequences, prompts), m in self._cells.items() if not prompts)
        return [m for _, m in sorted(cells, key=lambda c: c[0]) if m.steps >= ENOUGH_STEPS]

    def _weighted(self) -> Iterator[tuple[float, _Mean]]:
        """Yields cells by their steps, of which those count that their means remember."""
        for mean in self._cells.values():
            yield min(mean.steps, 1 / _LEAST_WEIGHT) / mean.seconds**2, mean


def _bucket(number: int) -> int:
    """Returns the cell of a number: 0 has its own, larger ones share half an octave."""
    if not number:
        return 0
    octave = number.bit_length() - 1
    return 1 + 2 * octave + (number * number >= 2 << (2 * octave))


_Row = tuple[float, tuple[float, float, float], float]


def _least_squares(rows: Sequence[_Row]) -> StepFit:
    """Returns the fit with the least weighted squares of errors, none of its parts below 0.

    Such a fit is an ordinary one of the parts that are not 0, so all choices of them are tried.
    """
    best, least = StepFit(0.0, 0.0, 0.0), float("inf")
    for count in (1, 2, 3):
        for parts in combinations(range(3), count):
            solved = _solve(rows, parts)
            if solved is None or min(solved) < 0:
                continue
            line = [0.0, 0.0, 0.0]
            for part, value in zip(parts, solved, strict=True):
                line[part] = value
            error = sum(
                w * (y - sum(a * b for a, b in zip(x, line, strict=True))) ** 2 for w, x, y in rows
            )
            if error < least:
                best, least = StepFit(*line), error
    return best


def _solve(rows: Sequence[_Row], parts: Sequence[int]) -> list[float] | None:
    """Returns the ordinary fit of some parts by elimination; None where it is not unique."""
    size = len(parts)
    table = [
        [sum(w * x[i] * x[j] for w, x, _ in rows) for j in parts]
        + [sum(w * x[i] * y for w, x, y in rows)]
        for i in parts
    ]
    scale = [table[i][i] for i in range(size)]
    for at in range(size):
        if table[at][at] <= _SINGULAR * scale[at] or not scale[at]:
            return None
        for row in range(size):
            if row != at:
                factor = table[row][at] / table[at][at]
                table[row] = [a - factor * b for a, b in zip(table[row], table[at], strict=True)]
    return [table[i][size] / table[i][i] for i in range(size)]
