"""The stages of a service, compiled: what routers and hubs need to run a request.

Made by :mod:`flowmesh_core.graph.service_stages`; a router reads it with its list of services and
sends it to the hubs, which know it by its digest.
"""

import contextlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from blake3 import blake3

from flowmesh_core.stages.values import (
    REQUEST,
    MissingValueError,
    ValueReference,
    parse_reference,
    parse_tree,
    references_in,
)

REPLY = "reply"
"""The name of the join of a reply, which is no stage's: it is of the router."""
CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
"""Paths of OpenAI's API that answer a stage; ``openai.request`` has all."""
COMPONENTS_PATH = "/components/"
"""Where an engine host answers calls of its Python components: this and the component's name."""


class Stage(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One call of a component.

    Attributes:
        path: what the component's engine host is asked for.
        inputs: name to reference, as text.
        params: with templates in texts.
        stream: whether the engine's answer is sent as it is made.
        affinity: the group of its component, whose stages run on one worker; empty for none.
    """

    name: str
    component: str
    path: str
    inputs: dict[str, str] = {}
    params: dict[str, Any] = {}
    stream: bool = False
    affinity: str = ""

    @property
    def is_python(self) -> bool:
        """Whether its component is Python code."""
        return self.path.startswith(COMPONENTS_PATH)


class ServiceGraph(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """All stages of a service.

    Attributes:
        stages: each after those whose values it needs.
        reply: name to reference, as text.
    """

    stages: tuple[Stage, ...]
    reply: dict[str, str]


def graph_without_stages(components: Iterable[str]) -> ServiceGraph:
    """Returns the stages of a service that has none: one call of each component."""
    names = tuple(components)
    return ServiceGraph(tuple(Stage(n, n, "") for n in names), {n: n for n in names})


class LoadedStage:
    """A stage, parsed.

    Attributes:
        inputs: by name.
        params: as ``parse_tree`` returns them.
        needs: the stages whose values it needs, and ``request`` where it needs that.
        prints: those of them whose values are in its texts.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.inputs = {name: _reference(text) for name, text in stage.inputs.items()}
        self.params = parse_tree(stage.params)
        self.prints = frozenset(r.source for r in references_in(self.params))
        self.needs = self.prints | {r.source for r in self.inputs.values()}


class LoadedGraph:
    """A graph, parsed, once for all requests.

    Attributes:
        digest: names the graph between a router and a hub.
        stages: by name, in order.
        groups: affinity group to its components, in the order of their stages.
        consumers: stage or ``request`` to the stages that need its value, and ``reply``.
        reply: name to reference.
        reply_needs: the stages whose values are in the reply.
        request_fields: the fields of a request that some stage or the reply reads.
    """

    def __init__(self, graph: ServiceGraph, keys: Mapping[str, str] = MappingProxyType({})) -> None:
        """Parses a graph.

        Args:
            graph: of the service.
            keys: component to reference, as text, to the field of a request that its replica is
                chosen by; hubs need none.
        """
        self.graph = graph
        self.digest = blake3(msgspec.msgpack.encode(graph)).hexdigest()[:32]
        self.stages = {stage.name: LoadedStage(stage) for stage in graph.stages}
        self.groups = _groups(graph)
        self.reply = {name: _reference(text) for name, text in graph.reply.items()}
        self.reply_needs = frozenset(r.source for r in self.reply.values()) - {REQUEST}
        self.consumers: dict[str, tuple[str, ...]] = {
            source: tuple(n for n, s in self.stages.items() if source in s.needs)
            + ((REPLY,) if source in self.reply_needs else ())
            for source in (REQUEST, *self.stages)
        }
        self.request_fields = tuple(
            sorted({r.path[0] for r in self._references() if r.source == REQUEST and r.path})
        )
        self._keys = {component: _reference(text) for component, text in keys.items()}

    @property
    def streamed(self) -> str:
        """The stage whose answer is streamed; empty for none."""
        return next((n for n, s in self.stages.items() if s.stage.stream), "")

    def keys_of(self, request: Mapping[str, Any]) -> dict[str, str]:
        """Returns the keys of a request, by component; none for a field that is missing or null."""
        found = {}
        for component, reference in self._keys.items():
            with contextlib.suppress(MissingValueError):
                value = reference.of({REQUEST: request})
                if value is not None:
                    digest = blake3(msgspec.json.encode(value))
                    found[component] = digest.hexdigest(length=16)
        return found

    def _references(self) -> list[ValueReference]:
        found = list(self.reply.values())
        for stage in self.stages.values():
            found += [*stage.inputs.values(), *references_in(stage.params)]
        return found


def _groups(graph: ServiceGraph) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for stage in graph.stages:
        if stage.affinity:
            found.setdefault(stage.affinity, []).append(stage.component)
    return {group: tuple(dict.fromkeys(components)) for group, components in found.items()}


def _reference(text: str) -> ValueReference:
    found = parse_reference(text)
    assert found is not None, f"{text!r} was compiled"
    return found
