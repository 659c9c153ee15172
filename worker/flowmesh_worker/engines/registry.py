"""The engines of this worker's installation: contracts and classes, joined by name.

The agent reads both once at its start; hosts get their engine's class by name and search nothing.
"""

import importlib
import importlib.util
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from flowmesh_core.catalog.builtin import contracts as builtin_contracts
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.protocol.messages import EngineVariant, EngineVersion
from flowmesh_worker.engines.preload import HostPreload

CONTRACTS_GROUP = "flowmesh.contracts"
ENGINES_GROUP = "flowmesh.engines"
_ACCELERATOR = "accelerator"
_log = logging.getLogger(__name__)

BUILTIN = {
    "code.component": "flowmesh_worker.engines.code.component:Component",
    "code.python": "flowmesh_worker.engines.code.python:Python",
    "data.metrics": "flowmesh_worker.engines.data.metrics:MetricsRows",
    "data.sql": "flowmesh_worker.engines.data.sql:Sql",
    "dataset.import": "flowmesh_worker.engines.imports.dataset:DatasetImport",
    "eval.exact-match": "flowmesh_worker.engines.eval.exact_match:ExactMatch",
    "eval.multiple-choice": "flowmesh_worker.engines.eval.multiple_choice:MultipleChoice",
    "eval.pass-at-k": "flowmesh_worker.engines.eval.pass_at_k:PassAtK",
    "eval.win-rate": "flowmesh_worker.engines.eval.win_rate:WinRate",
    "http.chat": "flowmesh_worker.engines.http.chat:HttpChat",
    "http.request": "flowmesh_worker.engines.http.request:HttpRequest",
    "llm.agent": "flowmesh_worker.engines.agent.engine:LlmAgent",
    "llm.embed": "flowmesh_worker.engines.llm.embed:LlmEmbed",
    "llm.generate": "flowmesh_worker.engines.llm.generate:LlmGenerate",
    "llm.openai": "flowmesh_worker.engines.llm.openai:LlmOpenAi",
    "llm.score": "flowmesh_worker.engines.llm.score:LlmScore",
    "model.import": "flowmesh_worker.engines.models.importing:ModelImport",
    "model.merge": "flowmesh_worker.engines.models.merging:ModelMerge",
    "retrieve.topk": "flowmesh_worker.engines.retrieve.topk:TopK",
    "source.resolve": "flowmesh_worker.engines.imports.resolve:Resolve",
    "test.drift": "flowmesh_worker.engines.testing.drift:Drift",
    "test.echo": "flowmesh_worker.engines.testing.echo:Echo",
    "test.fail": "flowmesh_worker.engines.testing.fail:Fail",
    "test.map": "flowmesh_worker.engines.testing.map:Map",
    "test.noop": "flowmesh_worker.engines.testing.noop:Noop",
    "test.openai": "flowmesh_worker.engines.testing.openai:TestOpenAi",
    "test.sleep": "flowmesh_worker.engines.testing.sleep:Sleep",
    "test.steps": "flowmesh_worker.engines.testing.steps:Steps",
    "train.dpo": "flowmesh_worker.engines.train.dpo:TrainDpo",
    "train.grpo": "flowmesh_worker.engines.train.grpo:TrainGrpo",
    "train.ppo": "flowmesh_worker.engines.train.ppo:TrainPpo",
    "train.reward": "flowmesh_worker.engines.train.reward:TrainReward",
    "train.sft": "flowmesh_worker.engines.train.sft:TrainSft",
}
"""The classes of the project's own engines: the one list of them. Plugins declare theirs in the
entry point group ``flowmesh.engines`` and cannot replace one of these."""

_MODELS = ("torch", "transformers")
_TRAINING = ("torch", "transformers", "trl")
NEEDS: dict[str, tuple[str, ...]] = {
    "llm.agent": _MODELS,
    "llm.embed": _MODELS,
    "llm.generate": _MODELS,
    "llm.openai": ("vllm", *_MODELS),
    "llm.score": _MODELS,
    "model.import": _MODELS,
    "model.merge": (*_MODELS, "peft"),
    "retrieve.topk": ("numpy",),
    "train.dpo": _TRAINING,
    "train.grpo": _TRAINING,
    "train.ppo": _TRAINING,
    "train.reward": _TRAINING,
    "train.sft": _TRAINING,
}
"""Libraries that a shipped engine needs: a worker of the thin image, which has none of them, does
not announce it. Engines that are not listed run on the base install."""


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """An engine of this installation: its contract, and its class as ``module:attribute``."""

    contract: EngineContract
    loads: str


class Engines:
    """The installed engines by name."""

    def __init__(self, entries: Iterable[EngineEntry], *, on_devices: bool = False) -> None:
        """Indexes the engines by name.

        Args:
            entries: one for each engine.
            on_devices: whether engines of the class ``accelerator`` get devices of their own.
        """
        self._entries = {e.contract.name: e for e in entries}
        self.on_devices = on_devices

    def names(self) -> list[str]:
        """Returns all names in alphabetical order."""
        return sorted(self._entries)

    def contract(self, name: str) -> EngineContract | None:
        """Returns the contract of an engine, or None if it is not installed."""
        entry = self._entries.get(name)
        return entry.contract if entry else None

    def loads(self, name: str) -> str:
        """Returns the class of an installed engine as ``module:attribute``.

        Raises:
            KeyError: it is not installed.
        """
        return self._entries[name].loads

    def versions(self) -> dict[str, EngineVersion]:
        """Returns the engines' versions by name, for the worker's shape."""
        return {n: e.contract.versions for n, e in sorted(self._entries.items())}

    def devices(self, name: str, tensor_parallel: int) -> int:
        """Returns how many devices a host of this engine owns."""
        return max(1, tensor_parallel) if self.on_devices and self._accelerated(name) else 0

    def preparation(self, name: str, params: Mapping[str, Any]) -> HostPreload | None:
        """Returns what a standby host of this engine imports, or None if it cannot have one.

        An engine class that raises has none: its host finds out what is wrong, if anything is.

        Args:
            name: the engine's name.
            params: the signature's parameters.
        """
        entry = self._entries.get(name)
        if entry is None or not self._accelerated(name):
            return None
        prepares = getattr(_class_of(entry.loads), "prepares", None)
        if prepares is None:
            return None
        try:
            found: HostPreload | None = prepares(params, on_devices=self.on_devices)
        except Exception as error:
            _log.warning("%s gets no standby host: prepares raised %r", name, error)
            return None
        return found

    def threads(self, name: str, cpus: int) -> int:
        """Returns how many CPU threads a host of this engine may use."""
        return cpus if self._accelerated(name) else 1

    def variants(self, device_class: str) -> tuple[EngineVariant, ...]:
        """Returns the variants of the identity fields that the engines can serve on these devices.

        An engine class whose contract has identity fields may have a static method
        ``variants(device_class)``, which must not import heavy libraries. Without it, the engine
        has one variant.
        """
        found: list[EngineVariant] = []
        for entry in self._entries.values():
            if entry.contract.identity_fields:
                ask = getattr(_class_of(entry.loads), "variants", None)
                found.extend(ask(device_class) if ask else [EngineVariant(entry.contract.name)])
        return tuple(found)

    def _accelerated(self, name: str) -> bool:
        entry = self._entries.get(name)
        return entry is not None and entry.contract.needs_gpu_class == _ACCELERATOR


def installed_engines(*, on_devices: bool = False) -> Engines:
    """Returns the shipped engines and those of plugins; warns of broken plugins."""
    contracts = Catalog([*builtin_contracts(), *_plugin_contracts()])
    classes = _plugin_classes() | BUILTIN
    entries = []
    for name, loads in sorted(classes.items()):
        contract = contracts.newest(name)
        if contract is None:
            _log.warning("engine %s has a class but no contract; it is left out", name)
        elif all(_is_installed(module) for module in _modules(name, loads)):
            entries.append(EngineEntry(contract, loads))
    return Engines(entries, on_devices=on_devices)


def _modules(name: str, loads: str) -> tuple[str, ...]:
    package = loads.partition(":")[0].partition(".")[0]
    return (package, *NEEDS.get(name, ()))


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _plugin_contracts() -> list[EngineContract]:
    found: list[EngineContract] = []
    for point in metadata.entry_points(group=CONTRACTS_GROUP):
        try:
            declare: Callable[[], Iterable[EngineContract]] = point.load()
            found.extend(declare())
        except Exception as error:
            _log.warning("contracts of %s are left out: %s", point.value, error)
    return found


def _plugin_classes() -> dict[str, str]:
    return {point.name: point.value for point in metadata.entry_points(group=ENGINES_GROUP)}


def _class_of(loads: str) -> Any:
    module, _, attribute = loads.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:
        _log.warning("engine class %s cannot be imported: %s", loads, error)
        return None
