"""What a workflow is expected to cost and take."""

from collections.abc import Callable
from decimal import Decimal

from flowmesh_api.v1.plan import GUESS, PlannedStep
from flowmesh_api.v1.plan import Forecast as Document
from flowmesh_sdk.html import table_html
from flowmesh_sdk.run import Run

_NANO = Decimal(1_000_000_000)
_UNKNOWN = "?"
_RUNS_NOTHING = ("hit", "skip")


class Forecast:
    """A workflow's forecast. ``str()`` of it is a table.

    Attributes:
        document: all that the API says.
    """

    def __init__(self, document: Document, submit: Callable[[], Run]) -> None:
        """Wraps an answer; ``submit`` starts the workflow."""
        self.document = document
        self._submit = submit

    @property
    def usd(self) -> Decimal | None:
        """Dollars of the steps that are known; None where no step that has to run is."""
        return self.document.least_nanousd / _NANO if self._knows_any else None

    @property
    def seconds(self) -> float | None:
        """Seconds along the longest path of known steps; None where none is known."""
        return self.document.least_seconds if self._knows_any else None

    @property
    def usd_range(self) -> tuple[Decimal, Decimal | None]:
        """Dollars that the run is expected to pay, guesses included: from, and to.

        The upper end is None where nothing bounds it.
        """
        high = self.document.high_nanousd
        return self.document.low_nanousd / _NANO, high / _NANO if high else None

    @property
    def seconds_range(self) -> tuple[float, float | None]:
        """Seconds that the run is expected to take, as :attr:`usd_range`."""
        return self.document.low_seconds, self.document.high_seconds or None

    @property
    def is_complete(self) -> bool:
        """Whether the figures are of all steps; otherwise they are lower bounds."""
        return not self.document.unmeasured

    @property
    def steps(self) -> tuple[PlannedStep, ...]:
        """Each step."""
        return self.document.steps

    @property
    def refusals(self) -> tuple[str, ...]:
        """Why its budget or deadline cannot be met; empty where they can, or are not known."""
        return self.document.refusals

    def submit(self) -> Run:
        """Starts the workflow; raises as :meth:`Client.submit`."""
        return self._submit()

    def run(self, *, timeout_s: float | None = None, progress: bool | None = None) -> Run:
        """Starts the workflow and waits; raises as :meth:`Workflow.run`."""
        return self._submit().wait_or_cancel(timeout_s=timeout_s, progress=progress)

    @property
    def _knows_any(self) -> bool:
        runs = [s for s in self.steps if s.expect not in _RUNS_NOTHING]
        return not runs or any(s.sure != GUESS for s in runs)

    def _rows(self) -> list[dict[str, str]]:
        rows = []
        for step in self.steps:
            known = step.sure != GUESS
            runs = step.expect not in _RUNS_NOTHING
            rows.append(
                {
                    "step": step.path,
                    "engine": step.engine,
                    "expect": step.expect,
                    "actions": str(step.actions or ("-" if step.expect != "unknown" else _UNKNOWN)),
                    "hits": str(step.hits or "-"),
                    "$": (f"{step.nanousd / _NANO:.6f}" if known else _UNKNOWN) if runs else "-",
                    "seconds": (f"{step.seconds:.1f}" if known else _UNKNOWN) if runs else "-",
                }
            )
        return rows

    def _sums(self) -> str:
        if all(s.expect in _RUNS_NOTHING for s in self.steps):
            return "nothing to run"
        (least_usd, most_usd), (least_s, most_s) = self.usd_range, self.seconds_range
        if not least_s:
            return "cost and time are not known: no connected worker can run it"
        if most_usd is None or most_s is None:
            return f"at least ${least_usd:.6f}, at least {least_s:.1f} s"
        return f"${least_usd:.6f} to ${most_usd:.6f}, {least_s:.1f} to {most_s:.1f} s"

    def __str__(self) -> str:
        """Returns a table of the steps, and the sums."""
        rows = self._rows()
        names = list(rows[0]) if rows else []
        widths = {n: max(len(n), *(len(r[n]) for r in rows)) for n in names}
        lines = [{n: n for n in names}, *rows]
        text = ["  ".join(line[n].ljust(widths[n]) for n in names).rstrip() for line in lines]
        refusals = [f"refused: {r}" for r in self.refusals]
        return "\n".join([*text, self._sums(), *refusals])

    def __repr__(self) -> str:
        """Shows the sums."""
        return f"<Forecast {self.document.name}: {self._sums()}>"

    def _repr_html_(self) -> str:
        return table_html(self._rows(), title=f"{self.document.name}: {self._sums()}")
