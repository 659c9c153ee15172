"""Limits of a workflow, checked at admission."""

from dataclasses import dataclass

from flowmesh_documents.substitution import FILLED_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest workflow that is accepted.

    Attributes:
        steps: steps after expansion, imports included.
        fan_out: instances of one step.
        depth: steps on the longest path.
        params_bytes: size of all parameters after ``${…}`` is filled in.
        rows_bytes: size of all rows written in the file.
        sources: references that one input lists.
        labels_bytes: size of the labels, which each line of a bill has.
    """

    steps: int = 100_000
    fan_out: int = 10_000
    depth: int = 10_000
    params_bytes: int = FILLED_BYTES_MAX
    rows_bytes: int = 8 * 1024 * 1024
    sources: int = 256
    labels_bytes: int = 4096
