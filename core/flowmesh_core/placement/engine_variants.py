"""Engine variants that workers offer (implementation, dtype, batch invariance), and remedies.

The hard constraints of placement use it, and so does admission, before a run exists.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flowmesh_core.protocol.messages import EngineVariant, WorkerShape


@dataclass(frozen=True, slots=True)
class VariantRequest:
    """The identity fields that a step requests. An empty string or None matches any value."""

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
        """Whether a worker offers this combination."""
        return any(self._met(v) for v in shape.variants)

    def _met(self, variant: EngineVariant) -> bool:
        return (
            variant.engine == self.engine
            and (not variant.implementation or self.implementation in {"", variant.implementation})
            and (not self.dtype or self.dtype in variant.dtypes)
            and self.batch_invariant in {None, *variant.batch_invariant}
        )


def problem(wish: VariantRequest, shapes: Sequence[WorkerShape]) -> str:
    """Returns why no worker offers a combination, and which single change helps.

    Empty if some worker offers it, or if no worker has the engine, which is a different problem.

    Args:
        wish: the requested combination.
        shapes: the workers' shapes.
    """
    offering = [s for s in shapes if wish.engine in s.engines]
    if not offering or any(wish.met_by(s) for s in offering):
        return ""
    requested = [f"implementation {wish.implementation}"] if wish.implementation else []
    requested += [f"dtype {wish.dtype}"] if wish.dtype else []
    if wish.batch_invariant is not None:
        requested.append(f"batchInvariant {str(wish.batch_invariant).lower()}")
    changes = list(dict.fromkeys(_changes(wish, offering)))
    change = f"set with.{' or with.'.join(changes)}, or add" if changes else "add"
    return f"no worker serves {wish.engine} with {', '.join(requested)}; {change} a pool that does"


def _changes(wish: VariantRequest, shapes: Iterable[WorkerShape]) -> Iterator[str]:
    """Yields changes of a single field that some worker offers, such as ``dtype: float32``."""
    variants = [v for s in shapes for v in s.variants if v.engine == wish.engine]
    for variant in variants:
        # "auto" may not help: the model's own dtype may be exactly the one that is not offered.
        for dtype in (d for d in variant.dtypes if d != "auto"):
            if wish.dtype and replace(wish, dtype=dtype)._met(variant):
                yield f"dtype: {dtype}"
    for variant in variants:
        for value in variant.batch_invariant:
            if wish.batch_invariant is not None and replace(wish, batch_invariant=value)._met(
                variant
            ):
                yield f"batchInvariant: {str(value).lower()}"
    for variant in variants:
        if wish.implementation and replace(wish, implementation=variant.implementation)._met(
            variant
        ):
            yield f"implementation: {variant.implementation}"
