"""Selects published results by where and when they were made; used to withhold them.

A whole step that the control plane composed was made by several attempts: it is selected where
one of them is.
"""

from dataclasses import dataclass

from flowmesh_core.protocol.results import ActionResult, Provenance


@dataclass(frozen=True, slots=True)
class ResultSelection:
    """Which results are meant; every condition that is given must hold.

    Attributes:
        pool: of the worker that made it; empty for any, as with the other texts.
        worker: its name.
        attempt: the attempt's id.
        library: name of a library that the engine host had, with ``=version`` for that one only.
        since_s: made at this time or later, by the control plane's clock (Unix time).
        until_s: made at this time or earlier.
    """

    pool: str = ""
    worker: str = ""
    attempt: str = ""
    library: str = ""
    since_s: float = 0.0
    until_s: float = float("inf")

    @property
    def is_empty(self) -> bool:
        """Whether no condition is given, so that every result would be meant."""
        named = self.pool or self.worker or self.attempt or self.library
        return not named and not self.since_s

    def selects(self, result: ActionResult) -> bool:
        """Whether a result is meant, for itself or for one of its parts."""
        return self.meets(result.provenance, result.created_s)

    def meets(self, made: Provenance, created_s: float) -> bool:
        """Whether a result of this provenance and time is meant.

        A whole step names no libraries: those of its parts decide, so it is selected with them.
        """
        if made.parts:
            return not self.library and any(
                self._meets(p.attempt_id, p.worker, p.pool, p.created_s) for p in made.parts
            )
        return self._meets(made.attempt_id, made.worker, made.pool, created_s) and (
            self._has_library(made.libraries)
        )

    def describe(self) -> str:
        """Returns the conditions as text, such as ``worker gpu-1, pool gpu``."""
        named = [("worker", self.worker), ("pool", self.pool), ("attempt", self.attempt)]
        found = [f"{name} {value}" for name, value in (*named, ("library", self.library)) if value]
        return ", ".join([*found, f"since {self.since_s:.0f}"] if self.since_s else found)

    def _meets(self, attempt: str, worker: str, pool: str, created_s: float) -> bool:
        return (
            self.pool in ("", pool)
            and self.worker in ("", worker)
            and self.attempt in ("", attempt)
            and self.since_s <= created_s <= self.until_s
        )

    def _has_library(self, libraries: dict[str, str]) -> bool:
        if not self.library:
            return True
        name, _, version = self.library.partition("=")
        return name in libraries and version.lstrip("=") in ("", libraries[name])
