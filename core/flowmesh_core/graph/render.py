"""Draws a plan as a text tree and as a Mermaid diagram, for ``fmesh graph``.

Wide matrices are one node, so that a workflow of thousands of steps fits a screen.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from flowmesh_core.graph.plan import FIRST, ArtifactSource, Plan, Source, StepPlan, StepSource

SHOWN_INSTANCES = 4
_Note = Callable[[str], str]


@dataclass(slots=True)
class _Node:
    """A step, or all instances of one that has too many to draw."""

    key: str
    title: str
    engine: str
    when: str
    paths: list[str] = field(default_factory=list)
    parents: dict[str, str] = field(default_factory=dict)  # parent's key to the ports that it feeds
    needed: set[str] = field(default_factory=set)  # parents without which the step is skipped


def text_tree(plan: Plan, note: _Note | None = None) -> str:
    """Returns the plan as a tree: each step once, below the last of the steps that it waits for.

    Args:
        plan: a compiled workflow.
        note: returns a few words on the step of a path, such as its state, for the end of its line.
    """
    nodes = _nodes(plan)
    place = {key: i for i, key in enumerate(nodes)}
    below: dict[str, list[_Node]] = {key: [] for key in nodes}
    roots = []
    for node in nodes.values():
        if node.parents:
            below[max(node.parents, key=place.__getitem__)].append(node)
        else:
            roots.append(node)
    lines = [plan.name]
    stack = [(n, "", n is roots[-1], "") for n in reversed(roots)]
    while stack:
        node, indent, last, above = stack.pop()
        others = [nodes[k].title for k in node.parents if k != above]
        lines.append(f"{indent}{'└─' if last else '├─'} {_line(node, others, note)}")
        inner = indent + ("   " if last else "│  ")
        children = below[node.key]
        stack += [(c, inner, c is children[-1], node.key) for c in reversed(children)]
    for name, sources in plan.outputs.items():
        lines.append(f"→ {name}: {_sources_text(sources)}")
    return "\n".join(lines)


def mermaid(plan: Plan) -> str:
    """Returns the plan as a Mermaid flowchart; dotted edges are conditions and optional inputs."""
    nodes = _nodes(plan)
    ids = {key: f"n{i}" for i, key in enumerate(nodes)}
    lines = ["flowchart LR"]
    for key, node in nodes.items():
        label = f"{_escaped(node.title)}<br/>{_escaped(node.engine)}"
        shape = f'(["{label}"])' if key.startswith("inputs.") else f'["{label}"]'
        lines.append(f"  {ids[key]}{shape}")
    for key, node in nodes.items():
        for parent, ports in node.parents.items():
            line = "-->" if parent in node.needed else "-.->"
            arrow = f"{line}|{_escaped(ports)}|"
            lines.append(f"  {ids[parent]} {arrow} {ids[key]}")
    of_path = {path: key for key, node in nodes.items() for path in node.paths}
    for i, (name, sources) in enumerate(plan.outputs.items()):
        lines.append(f'  o{i}[/"{_escaped(name)}"/]')
        found = dict.fromkeys(of_path[s.step] for s in sources if isinstance(s, StepSource))
        lines += [f"  {ids[key]} --> o{i}" for key in found]
    return "\n".join(lines)


def _nodes(plan: Plan) -> dict[str, _Node]:
    instances: dict[str, int] = {}
    for step in plan.steps:
        instances[step.name] = instances.get(step.name, 0) + 1
    key_of = {s.path: _key(s, instances[s.name]) for s in plan.steps}
    nodes: dict[str, _Node] = {}
    for step in plan.steps:
        key = key_of[step.path]
        node = nodes.get(key)
        if node is None:
            many = key != step.path
            title = f"{step.name}[*] x{instances[step.name]}" if many else step.path
            node = nodes[key] = _Node(key, title, step.engine, step.when)
        node.paths.append(step.path)
        _connect(node, step, key_of)
    return nodes


def _key(step: StepPlan, instances: int) -> str:
    return f"{step.name}[*]" if instances > SHOWN_INSTANCES else step.path


def _connect(node: _Node, step: StepPlan, key_of: dict[str, str]) -> None:
    for edge in step.edges:
        for source in edge.sources:
            if isinstance(source, StepSource):
                parent = key_of[source.step]
                ports = node.parents.get(parent, "").split(", ") if parent in node.parents else []
                if edge.port not in ports:
                    node.parents[parent] = ", ".join([*filter(None, ports), edge.port])
                if edge.pick != FIRST and edge.skips:
                    node.needed.add(parent)
    for path in step.when_steps:
        node.parents.setdefault(key_of[path], "when")
    for path in step.after:
        node.parents.setdefault(key_of[path], "after")


def _line(node: _Node, others: list[str], note: _Note | None) -> str:
    parts = [f"{node.title}  {node.engine}"]
    if node.when:
        parts.append(f"when {node.when}")
    if others:
        parts.append(f"after {', '.join(others)}")
    if note is not None and len(node.paths) == 1 and (words := note(node.paths[0])):
        parts.append(words)
    return "  ".join(parts)


def _sources_text(sources: tuple[Source, ...]) -> str:
    names = [
        s.reference if isinstance(s, ArtifactSource) else f"{s.step}.{s.port}" for s in sources
    ]
    more = f" and {len(names) - SHOWN_INSTANCES} more" if len(names) > SHOWN_INSTANCES else ""
    return " + ".join(names[:SHOWN_INSTANCES]) + more


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace("|", "/")
