"""Messages of the evaluator of conditions, as MessagePack in frames."""

import msgspec

from flowmesh_core.graph.conditions import ConditionQuery, ConditionVerdict

CONDITION_S = 1.0
"""Processor time of one request about a condition."""


class EvaluatorReady(msgspec.Struct, frozen=True, tag="Ready"):
    """The child has loaded its libraries and is confined."""


class ParseCondition(msgspec.Struct, frozen=True, tag="ParseCondition"):
    """Answer with :class:`ConditionReads`, or with the verdict where it cannot be parsed."""

    text: str


class ConditionReads(msgspec.Struct, frozen=True, tag="Reads"):
    """Where a condition looks in params, matrix values and steps (``condition_reads.Reads``)."""

    paths: tuple[tuple[str, ...], ...]


class Evaluate(msgspec.Struct, frozen=True, tag="Evaluate"):
    """Answer with :class:`Evaluated`."""

    query: ConditionQuery


class Evaluated(msgspec.Struct, frozen=True, tag="Evaluated"):
    """The result of a condition."""

    verdict: ConditionVerdict


ConditionRequest = ParseCondition | Evaluate
ConditionReply = EvaluatorReady | ConditionReads | Evaluated
