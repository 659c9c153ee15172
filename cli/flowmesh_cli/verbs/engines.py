"""``fmesh engines``: lists the catalog, or shows one engine's contract."""

import json
from typing import Any

from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.installation import install_command, worker_extra
from flowmesh_cli.nearness import nearest
from flowmesh_cli.terminal import Terminal
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import Choice, EngineContract, Param, Port
from flowmesh_core.catalog.identity_fields import resource_fields, with_fields
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_worker.engines.registry import installed_engines

_TESTING = "test."
"""The prefix of the names of engines for tests."""


def show_engines(name: str, *, every: bool, place: Target, as_json: bool) -> None:
    """Lists the engines (``every``: those for tests too), or shows the contract of one."""
    terminal = Terminal(as_json=as_json)
    catalog = _catalog(place)
    if name:
        contract = _find(catalog, name)
        if as_json:
            terminal.answer(_document(contract))
        else:
            _show_one(terminal, contract)
        return
    contracts = [c for c in catalog if every or not c.name.startswith(_TESTING)]
    if as_json:
        terminal.answer([_document(c) for c in contracts])
        return
    here = None if place.is_cluster else set(installed_engines().names())
    rows = [
        [
            c.name if here is None or c.name in here else f"{c.name} *",
            c.determinism.value,
            _ports(c.inputs),
            _ports(c.outputs),
            _sentence(c.doc),
        ]
        for c in contracts
    ]
    headings = ["engine", "determinism", "inputs", "outputs", ""]
    terminal.table(
        headings,
        rows,
        whole="engine inputs outputs",
        cut=[""],
        optional="inputs outputs determinism",
    )
    terminal.text()
    terminal.text("fmesh engines NAME shows one engine; '?' marks an optional port")
    if here is not None and any(c.name not in here for c in contracts):
        terminal.text(f"* does not run here: {install_command(worker_extra())}")


def _catalog(place: Target) -> Catalog:
    if not place.is_cluster:
        return load_catalog()
    with query_fabric(place) as http:
        return Catalog(http.get("/v1/engines", list[EngineContract]))


def _find(catalog: Catalog, name: str) -> EngineContract:
    contract = catalog.newest(name)
    if contract is None:
        raise CliError(
            f"no engine {name!r}{nearest(name, catalog.names())}",
            ExitCode.NOT_FOUND,
            remedy="`fmesh engines` lists them",
        )
    return contract


def _show_one(terminal: Terminal, c: EngineContract) -> None:
    terminal.text(f"{c.name} (contract {c.version}, implementation {c.implementation})")
    terminal.text(f"  {c.doc}")
    terminal.text(f"  determinism: {c.determinism.value}; counts {c.work_unit}")
    for what, choices in (
        ("external", c.external_with),
        ("sampled", c.sampled_with),
        ("needs a pool that allows user code", c.user_code_with),
        ("may be retried", c.idempotent_with),
    ):
        if choices:
            terminal.text(f"  {what} with {' or '.join(map(_choice, choices))}")
    if fields := with_fields(c):
        terminal.text(f"  with, besides the parameters: {', '.join(fields)}")
    if fields := resource_fields(c):
        terminal.text(f"  under resources: {', '.join(fields)}")
    for heading, ports in (("inputs", c.inputs), ("outputs", c.outputs)):
        if ports:
            terminal.text()
            rows = [[_port(p), p.kind.value, _port_doc(p)] for p in ports]
            terminal.table([heading, "kind", ""], rows)
    if c.params:
        terminal.text()
        rows = [[p.name, p.type.value, _default(p), _bounds(p), p.doc] for p in c.params]
        terminal.table(
            ["parameter", "type", "default", "allowed", ""], rows, whole="parameter type"
        )
    for group in c.one_of:
        named = ", ".join(_member(c, name) for name in group)
        terminal.text(f"  {'exactly one of' if len(group) > 1 else 'needs'}: {named}")
    for example in c.examples:
        terminal.text()
        terminal.text(f"  {example}")


def _member(c: EngineContract, name: str) -> str:
    others = [p.name for p in c.params if name in p.beside]
    return f"{name} (or {' or '.join(others)})" if others else name


def _sentence(text: str) -> str:
    return text.partition(". ")[0].rstrip(".")


def _ports(ports: tuple[Port, ...]) -> str:
    return ", ".join(f"{_port(p)}: {p.kind.value}" for p in ports) or "-"


def _port(port: Port) -> str:
    optional = not port.required or port.only_with is not None
    return f"{port.name}?" if optional else port.name


def _port_doc(port: Port) -> str:
    return (
        port.doc if port.only_with is None else f"only with {_choice(port.only_with)}: {port.doc}"
    )


def _choice(choice: Choice) -> str:
    name, value = choice
    return f"{name}: {json.dumps(value)}"


def _default(param: Param) -> str:
    if param.required:
        return "required"
    return "-" if param.default is None else repr(param.default)


def _bounds(param: Param) -> str:
    if param.choices:
        return ", ".join(map(str, param.choices))
    if param.minimum is None and param.maximum is None:
        return "template" if param.template else ""
    low = "" if param.minimum is None else f"{param.minimum:g}"
    high = "" if param.maximum is None else f"{param.maximum:g}"
    return f"{low} to {high}" if high else f"at least {low}"


def _document(contract: EngineContract) -> dict[str, Any]:
    fields = {name: getattr(contract, name) for name in contract.__dataclass_fields__}
    return {
        **fields,
        "inputs": [_fields(p) for p in contract.inputs],
        "outputs": [_fields(p) for p in contract.outputs],
        "params": [_fields(p) for p in contract.params],
    }


def _fields(part: Port | Param) -> dict[str, Any]:
    return {name: getattr(part, name) for name in part.__dataclass_fields__}
