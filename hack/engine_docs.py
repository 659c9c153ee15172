"""Checks docs/engines.md against the catalog and the example plugin; ``--write`` updates it.

The parts between markers are generated from the contracts and the files of ``examples/plugin``; the
text around them is written by hand. Called by ``make check`` and ``make generate``.
"""

import json
import sys
from pathlib import Path

from flowmesh_core.catalog.builtin import contracts
from flowmesh_core.catalog.contract import (
    Choice,
    Determinism,
    EngineContract,
    Param,
    Port,
    PortKind,
    Reduction,
)
from flowmesh_core.catalog.identity_fields import resource_fields, with_fields
from flowmesh_core.catalog.timeouts import duration

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "engines.md"
EXAMPLE = ROOT / "examples" / "plugin"
FILES = (
    ("word_count/contracts.py", "python"),
    ("word_count/engine.py", "python"),
    ("pyproject.toml", "toml"),
    ("workflow.yaml", "yaml"),
)
PROMISES = {
    Determinism.EXACT: "exact: the same inputs give the same bytes",
    Determinism.SEEDED: "seeded: the same inputs and seed give the same bytes",
    Determinism.SAMPLED: "sampled: a second run may give a different result",
    Determinism.EXTERNAL: "external: it depends on, or changes, something outside the fabric",
}


def engines() -> str:
    """Returns a section per engine, in order of name."""
    ordered = sorted(contracts(), key=lambda c: c.name)
    return "\n\n".join(_engine(c) for c in ordered)


def plugin() -> str:
    """Returns the example plugin's files."""
    blocks = []
    for name, language in FILES:
        text = (EXAMPLE / name).read_text(encoding="utf-8").rstrip()
        blocks.append(f"`{name}`\n\n```{language}\n{text}\n```")
    return "\n\n".join(blocks)


def _facts(c: EngineContract) -> list[str]:
    facts = [PROMISES[c.determinism], *_exceptions(c)]
    if c.idempotent_with and not c.idempotent:
        facts.append(f"retried only with {_choices(c.idempotent_with)}")
    if c.row_wise:
        facts.append("row-wise: one action for each chunk")
    devices = c.needs_gpu_class == "accelerator"
    facts.append("runs on the pool's accelerators, if it has any" if devices else "runs on the CPU")
    if c.user_code:
        facts.append("needs a pool that allows user code")
    elif c.user_code_with:
        facts.append(f"with {_choices(c.user_code_with)}, needs a pool that allows user code")
    if c.default_timeout_s:
        facts.append(_timeouts(c))
    return [*facts, f"usage is counted in {c.work_unit}"]


def _exceptions(c: EngineContract) -> list[str]:
    """Returns the values with which a step has another determinism than its engine."""
    found = []
    if c.determinism is Determinism.SEEDED and "batchInvariant" in c.identity_fields:
        found.append("sampled with `batchInvariant: false`")
    if c.sampled_with:
        found.append(f"sampled with {_choices(c.sampled_with)}")
    if c.external_with:
        found.append(f"external with {_choices(c.external_with)}")
    return found


def _timeouts(c: EngineContract) -> str:
    usual, longest = duration(c.default_timeout_s), duration(c.max_timeout_s)
    if longest == usual:
        return f"an attempt times out after {usual}, or after a shorter `timeout`"
    own = f" (later if `{c.timeout_param}` needs it)" if c.timeout_param else ""
    return f"an attempt times out after {usual}{own}, or after `timeout`, {longest} at most"


def _engine(c: EngineContract) -> str:
    parts = [f"### `{c.name}`", _cell(c.doc), f"*{'; '.join(_facts(c))}.*"]
    if c.inputs:
        rows = [[_name(p), p.kind.value, _input(p), _cell(p.doc)] for p in c.inputs]
        parts.append(_table(["input", "kind", "", ""], rows))
    if c.outputs:
        rows = [[f"`{p.name}`", p.kind.value, *_output(c, p), _output_doc(p)] for p in c.outputs]
        over = ["chunks are combined by"] if c.row_wise else []
        parts.append(_table(["output", "kind", *over, ""], rows))
    if c.params:
        rows = [[f"`{p.name}`", p.type.value, _default(p), _param_doc(p)] for p in c.params]
        parts.append(_table(["parameter", "type", "default", ""], rows))
    for group in c.one_of:
        named = ", ".join(_member(c, name) for name in group)
        parts.append(f"Exactly one of {named}." if len(group) > 1 else f"Needs {named}.")
    if fields := with_fields(c):
        parts.append(f"Also in `with`: {_names(fields)}.")
    if fields := resource_fields(c):
        parts.append(f"Under `resources`: {_names(fields)}.")
    if c.examples:
        parts.append("\n".join(["```yaml", *c.examples, "```"]))
    return "\n\n".join(parts)


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _member(c: EngineContract, name: str) -> str:
    others = [f"`{p.name}`" for p in c.params if name in p.beside]
    return f"`{name}` (or {' or '.join(others)})" if others else f"`{name}`"


def _name(port: Port) -> str:
    return "any names" if port.name == "*" else f"`{port.name}`"


def _input(port: Port) -> str:
    notes = ["required" if port.required else "optional"]
    if port.component:
        notes.append("loaded into the engine")
    return ", ".join(notes)


def _output(c: EngineContract, port: Port) -> list[str]:
    if not c.row_wise:
        return []
    joined = port.kind is PortKind.DATASET or port.reduction is Reduction.CONCAT
    return ["concatenation" if joined else port.reduction.value]


def _output_doc(port: Port) -> str:
    only = f"Only with {_choices((port.only_with,))}. " if port.only_with is not None else ""
    return _cell(only + port.doc)


def _param_doc(param: Param) -> str:
    only = "".join(f" Only with `implementation: {i}`." for i in param.implementations)
    since = (
        f" Needs a worker whose contract has minor {param.added} or later." if param.added else ""
    )
    return _cell(param.doc + only + since)


def _choices(choices: tuple[Choice, ...]) -> str:
    return " or ".join(f"`{name}: {json.dumps(value)}`" for name, value in choices)


def _default(param: Param) -> str:
    if param.required:
        return "required"
    shown = "" if param.default is None else f"`{json.dumps(param.default)}`"
    if param.choices:
        shown += f" of {', '.join(map(str, param.choices))}"
    elif param.items:
        shown += f" items of {', '.join(map(str, param.items))}"
    elif param.minimum is not None and param.maximum is not None:
        shown += f", {param.minimum:,} to {param.maximum:,}"
    elif param.minimum is not None:
        shown += f", at least {param.minimum:,}"
    return shown.strip(", ") or ("template" if param.template else "")


def _table(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def renewed(page: str) -> str:
    """Returns the page with its generated parts replaced."""
    for name, text in (("engines", engines()), ("plugin", plugin())):
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        head, _, rest = page.partition(begin)
        _, found, tail = rest.partition(end)
        if not found:
            raise SystemExit(f"{PAGE}: the markers {begin} and {end} are missing")
        page = f"{head}{begin}\n\n{text}\n\n{end}{tail}"
    return page


def main() -> int:
    """Checks the page, or writes it with ``--write``; returns the exit code."""
    page = PAGE.read_text(encoding="utf-8")
    wanted = renewed(page)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(wanted, encoding="utf-8")
    elif page != wanted:
        print(f"{PAGE.relative_to(ROOT)} differs from the catalog; remedy: make generate")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
