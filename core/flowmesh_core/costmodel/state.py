"""The stored form of a cost model: a snapshot, written from time to time, that may be lost."""

import msgspec

from flowmesh_core.costmodel.fetch_times import LearnedNetwork
from flowmesh_core.costmodel.model import CostModel, FittedModel
from flowmesh_core.costmodel.prior import FEATURES
from flowmesh_core.costmodel.regression import PriorFit
from flowmesh_core.costmodel.residuals import Residuals
from flowmesh_core.decoding import decode

STATE_VERSION = 1


class _LearnedState(msgspec.Struct, frozen=True):
    level: tuple[str, ...]
    theta: list[float]
    spread: list[list[float]]
    count: int
    streak: int
    usual: float
    error: float
    ratios: list[float]
    load_log: float
    load_count: int


class _ModelState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The whole state.

    Attributes:
        fetches: what was learned about networks by pool. Older releases neither write nor read it.
    """

    version: int
    learned: list[_LearnedState]
    memory: list[tuple[tuple[str, ...], int]]
    fetches: list[tuple[str, LearnedNetwork]] = []


def encode_model(model: CostModel) -> bytes:
    """Returns the stored form: JSON, with the fit that was updated longest ago first."""
    learned = [
        _LearnedState(
            level=level,
            theta=one.fit.theta,
            spread=one.fit.spread,
            count=one.fit.count,
            streak=one.fit.streak,
            usual=one.fit.usual,
            error=one.fit.error,
            ratios=list(one.residuals.recent),
            load_log=one.load_log,
            load_count=one.load_count,
        )
        for level, one in model.learned.items()
    ]
    memory = list(model.memory_mib_by_level.items())
    fetches = list(model.fetches.by_pool.items())
    return msgspec.json.encode(_ModelState(STATE_VERSION, learned, memory, fetches))


def decode_model(data: bytes) -> CostModel:
    """Reads the stored form; another version of it gives a model that knows only the prior.

    Raises:
        msgspec.DecodeError: the bytes are not a model.
    """
    model = CostModel()
    if decode(_version_decoder, data).version != STATE_VERSION:
        return model
    state = decode(_state_decoder, data)
    for one in state.learned:
        if len(one.theta) != FEATURES or [len(row) for row in one.spread] != [FEATURES] * FEATURES:
            raise msgspec.ValidationError(f"a fit of {one.level} has other than {FEATURES} parts")
        fit = PriorFit(tuple(one.theta))
        fit.spread = one.spread
        fit.count, fit.streak, fit.usual, fit.error = one.count, one.streak, one.usual, one.error
        learned = FittedModel(fit, one.load_log)
        learned.residuals = Residuals(one.ratios)
        learned.load_count = one.load_count
        model.learned[one.level] = learned
    model.memory_mib_by_level.update(state.memory)
    model.fetches.by_pool.update(state.fetches)
    return model


class _Version(msgspec.Struct, frozen=True):
    version: int


_version_decoder = msgspec.json.Decoder(_Version)
_state_decoder = msgspec.json.Decoder(_ModelState)
