"""Which implementations, dtypes and batch invariance workers serve together, and what to change.

Asked by the constraints of placement, and by admission before a run exists.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flowmesh_core.protocol.messages import EngineVariant, WorkerShape


@dataclass(frozen=True, slots=True)
class VariantRequest:
    """The identity fields that a step asks for; empty and None are any."""

    engine: str
    implementation: str = ""
    dtype: str = ""
    batch_invariant: bool | None = None

    @classmethod
    def of(cls, engine: str, fields: Mapping[str, Any]) -> "VariantRequest":
        """Reads a step's resolved identity fields."""
        return cls(
            engine,
            str(fields.get("implementation") or ""),
            str(fields.get("dtype") or ""),
            fields.get("batchInvariant"),
        )

    def met_by(self, shape: WorkerShape) -> bool:
        """Whether a worker serves this combination."""
        return any(self._met(h) for h in shape.honours)

    def _met(self, honours: EngineVariant) -> bool:
        return (
            honours.engine == self.engine
            and self.implementation in {"", honours.implementation}
            and (not self.dtype or self.dtype in honours.dtypes)
            and self.batch_invariant in {None, *honours.batch_invariant}
        )


def problem(wish: VariantRequest, shapes: Sequence[WorkerShape]) -> str:
    """Why no worker serves a combination and which single change is served; empty where one does.

    Args:
        wish: the combination.
        shapes: the workers; empty where none offers the engine, which is another matter.
    """
    offering = [s for s in shapes if wish.engine in s.engines]
    if not offering or any(wish.met_by(s) for s in offering):
        return ""
    asked = [f"implementation {wish.implementation}"] if wish.implementation else []
    asked += [f"dtype {wish.dtype}"] if wish.dtype else []
    if wish.batch_invariant is not None:
        asked.append(f"batchInvariant {str(wish.batch_invariant).lower()}")
    changes = list(dict.fromkeys(_changes(wish, offering)))
    change = f"set with.{' or with.'.join(changes)}, or add" if changes else "add"
    return f"no worker serves {wish.engine} with {', '.join(asked)}; {change} a pool that does"


def _changes(wish: VariantRequest, shapes: Iterable[WorkerShape]) -> Iterator[str]:
    """Changes of one field that some worker serves: ``dtype: float32`` ..."""
    mine = [h for s in shapes for h in s.honours if h.engine == wish.engine]
    for honours in mine:
        # The model's own dtype may be the one that is not served.
        for dtype in (d for d in honours.dtypes if d != "auto"):
            if wish.dtype and replace(wish, dtype=dtype)._met(honours):
                yield f"dtype: {dtype}"
    for honours in mine:
        for value in honours.batch_invariant:
            if wish.batch_invariant is not None and replace(wish, batch_invariant=value)._met(
                honours
            ):
                yield f"batchInvariant: {str(value).lower()}"
    for honours in mine:
        if wish.implementation and replace(wish, implementation=honours.implementation)._met(
            honours
        ):
            yield f"implementation: {honours.implementation}"
