"""Writes and restores the complete state of a training, so that it resumes to the same result.

Imported only by hosts that train. transformers' own checkpoints are partly pickles; these are
safetensors and JSON: the trained weights, the optimizer, the schedule, the random generators, the
log, and the sums that the trainer accumulates between two log entries.
"""

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
import transformers

FORMAT = 1
_STATE = "trainer_state.json"
_REST = "rest.json"
_WEIGHTS = "weights.safetensors"
_OPTIMIZER = "optimizer.safetensors"
_RANDOM = "random.safetensors"
_CPU, _DEVICE = "cpu", "device"


def write_checkpoint(trainer: Any, engine: str, folder: Path) -> Path:
    """Writes the state of a trainer between two steps.

    Args:
        trainer: a ``transformers.Trainer``.
        engine: the engine's name; only this engine resumes from the checkpoint.
        folder: to be created.
    """
    folder.mkdir(parents=True)
    trained = {n: p.detach().contiguous() for n, p in _trained(trainer)}
    safetensors.torch.save_file(trained, str(folder / _WEIGHTS))
    tensors, optimizer = _split(trainer.optimizer.state_dict())
    safetensors.torch.save_file(tensors, str(folder / _OPTIMIZER))
    safetensors.torch.save_file(_random_tensors(), str(folder / _RANDOM))
    trainer.state.save_to_json(str(folder / _STATE))
    rest = {
        "header": _header(engine),
        "optimizer": optimizer,
        "schedule": trainer.lr_scheduler.state_dict(),
        "random": _random_state(),
        "sums": _sums(trainer),
    }
    (folder / _REST).write_text(json.dumps(rest))
    return folder


def usable(folder: Path, engine: str) -> bool:
    """Whether this process can resume from a checkpoint: engine and library versions match."""
    try:
        header = json.loads((folder / _REST).read_text())["header"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    names = (_STATE, _WEIGHTS, _OPTIMIZER, _RANDOM)
    return bool(header == _header(engine)) and all((folder / n).is_file() for n in names)


class CheckpointRestore:
    """Replaces a trainer's own loading of checkpoints."""

    def __init__(self, trainer: Any, folder: Path) -> None:
        """Replaces the trainer's methods that load a checkpoint.

        Args:
            trainer: not started yet.
            folder: a usable checkpoint.
        """
        self._trainer = trainer
        self._folder = folder
        self._rest = json.loads((folder / _REST).read_text())
        trainer._load_from_checkpoint = self._weights
        trainer._load_optimizer_and_scheduler = self._optimizer
        trainer._load_rng_state = self._random

    def _weights(self, *_: Any) -> None:
        saved = safetensors.torch.load_file(str(self._folder / _WEIGHTS))
        with torch.no_grad():
            for name, parameter in _trained(self._trainer):
                parameter.copy_(saved[name])

    def _optimizer(self, *_: Any) -> None:
        tensors = safetensors.torch.load_file(str(self._folder / _OPTIMIZER))
        self._trainer.optimizer.load_state_dict(_joined(tensors, self._rest["optimizer"]))
        self._trainer.lr_scheduler.load_state_dict(self._rest["schedule"])

    def _random(self, *_: Any) -> None:
        state = self._rest["random"]
        version, internal, gauss = state["python"]
        random.setstate((version, tuple(internal), gauss))
        kind, keys, *where = state["numpy"]
        np.random.set_state((kind, np.array(keys, dtype=np.uint32), *where))
        tensors = safetensors.torch.load_file(str(self._folder / _RANDOM))
        torch.set_rng_state(tensors[_CPU])
        if _DEVICE in tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(tensors[_DEVICE])
        _put_sums(self._trainer, self._rest["sums"])


def _header(engine: str) -> dict[str, Any]:
    import trl  # noqa: PLC0415 - its version alone

    versions = {"transformers": transformers.__version__, "trl": trl.__version__}
    return {"format": FORMAT, "engine": engine, **versions}


def _trained(trainer: Any) -> list[tuple[str, Any]]:
    return [(n, p) for n, p in trainer.model.named_parameters() if p.requires_grad]


def _split(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits an optimizer's state into tensors by name and the rest."""
    tensors: dict[str, Any] = {}
    plain: dict[str, dict[str, Any]] = defaultdict(dict)
    for index, values in state["state"].items():
        for key, value in values.items():
            if isinstance(value, torch.Tensor):
                tensors[f"{index}.{key}"] = value.detach().contiguous()
            else:
                plain[str(index)][key] = value
    return tensors, {"plain": plain, "groups": state["param_groups"]}


def _joined(tensors: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    state: dict[int, dict[str, Any]] = defaultdict(dict)
    for name, tensor in tensors.items():
        index, _, key = name.partition(".")
        state[int(index)][key] = tensor
    for index, values in rest["plain"].items():
        state[int(index)].update(values)
    return {"state": dict(state), "param_groups": rest["groups"]}


def _random_tensors() -> dict[str, Any]:
    out = {_CPU: torch.get_rng_state()}
    if torch.cuda.is_available():
        out[_DEVICE] = torch.cuda.get_rng_state()
    return out


def _random_state() -> dict[str, Any]:
    kind, keys, *where = np.random.get_state(legacy=True)
    return {"python": random.getstate(), "numpy": [kind, np.asarray(keys).tolist(), *where]}


def _sums(trainer: Any) -> dict[str, Any]:
    """Returns what the trainer accumulates between two log entries."""
    return {
        "loss": trainer._tr_loss.item(),
        "logged": trainer._globalstep_last_logged,
        "tokens": getattr(trainer, "_total_train_tokens", 0),
        "figures": {m: dict(v) for m, v in getattr(trainer, "_metrics", {}).items()},
    }


def _put_sums(trainer: Any, sums: dict[str, Any]) -> None:
    trainer._tr_loss.fill_(sums["loss"])
    trainer._globalstep_last_logged = sums["logged"]
    if hasattr(trainer, "_metrics"):
        trainer._total_train_tokens = sums["tokens"]
        for mode, figures in sums["figures"].items():
            trainer._metrics[mode].update(figures)
