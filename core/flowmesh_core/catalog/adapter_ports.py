"""The LoRA adapters that a replica loads beside its model, as further ports of its components.

A port ``adapter/NAME`` has the adapter that callers name ``MODEL:NAME``. The contract of the engine
has one port for adapters, whose content comes with each action of a workflow; a replica has all of
its adapters from the start, and an engine instance of its own for them (ADR 96).
"""

from collections.abc import Iterable, Mapping

from flowmesh_core.units import Digest

_PORT = "adapter/"
_SEPARATOR = ":"


def adapter_port(name: str) -> str:
    """Returns the port of an adapter."""
    return f"{_PORT}{name}"


def adapter_names(ports: Iterable[str]) -> dict[str, str]:
    """Returns the ports of adapters by the adapter's name; no others."""
    return {p.removeprefix(_PORT): p for p in ports if p.startswith(_PORT)}


def adapter_contents(digests: Mapping[str, Digest]) -> tuple[str, ...]:
    """Returns what tells an engine instance with these adapters from others of its model.

    Args:
        digests: of what the instance loads, by port.
    """
    return tuple(sorted(f"{port}={digests[port]}" for port in adapter_names(digests).values()))


def adapted_model(model: str, adapter: str) -> str:
    """Returns the name in OpenAI's API of a model with an adapter."""
    return f"{model}{_SEPARATOR}{adapter}"


def split_model(name: str) -> tuple[str, str]:
    """Returns the model and the adapter of a name; both empty where it names no adapter."""
    model, _, adapter = name.rpartition(_SEPARATOR)
    return (model, adapter) if model else ("", "")
