"""Inputs from outside: uploaded content, references, and names that workers import.

A step of its own resolves a name whose content may change (``inputs.base.pin``, once per run); a
fixed name is imported directly, and the import is shared (ADR 2).
"""

from collections.abc import Mapping
from typing import Any

from flowmesh_core.catalog.builtin.importing import STORED
from flowmesh_core.catalog.builtin_models import BUILTIN_MODELS, BUILTIN_PREFIX
from flowmesh_core.catalog.contract import EngineContract, PortKind
from flowmesh_core.catalog.hub_addresses import HubAddressError, read_hub_address
from flowmesh_core.dataset.infer import infer_schema
from flowmesh_core.dataset.schema import ColumnType
from flowmesh_core.errors import IdentityError, InvalidReferenceError
from flowmesh_core.graph.compile_context import Columns, CompileContext, InputEntry, Keys
from flowmesh_core.graph.plan import (
    ArtifactSource,
    Cache,
    Edge,
    StepPlan,
    StepSource,
)
from flowmesh_core.graph.row_selection import selection_problems
from flowmesh_core.identity import digest_bytes
from flowmesh_core.identity.additions import needed_minor
from flowmesh_core.identity.coerce import default_of
from flowmesh_core.sharing import REFERENCE_PREFIX, read_reference
from flowmesh_core.spec.inputs import ONE_SOURCE_RULE, ConfigMapKey, InputSpec
from flowmesh_core.spec.secrets import with_place
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_documents.local_paths import is_local
from flowmesh_documents.values import json_size

RESOLVE = "source.resolve"
_ENGINES = {
    "model": ("model.import", "model"),
    "dataset": ("dataset.import", "rows"),
    "adapter": ("adapter.import", "adapter"),
}
_SOURCES = {
    "model": "model",
    "dataset": "dataset",
    "adapter": "adapter",
    "rows": "rows",
    "config_map": "configMap",
    "output": "output",
}
"""Where an input may come from: the field, and how it is written."""
_REMOTE = ("s3://", "https://", "hf://")


def pin_path(name: str) -> str:
    """Returns the path of the step that resolves an input's address."""
    return f"inputs.{name}.pin"


def read_inputs(scope: CompileContext) -> None:
    """Reads every input of the workflow into the scope; those with problems as None."""
    for name, spec in scope.workflow.spec.inputs.items():
        keys: Keys = ("spec", "inputs", name)
        given = {w: v for k, w in _SOURCES.items() if (v := getattr(spec, k)) is not None}
        if len(given) != 1:
            got = f"got {' and '.join(given)}" if given else "got none"
            scope.report(keys, f"{ONE_SOURCE_RULE}; {got}")
            scope.inputs[name] = None
            continue
        ((kind, value),) = given.items()
        text = value.strip() if isinstance(value, str) else ""
        refused = list(selection_problems(spec, kind, text))
        for field, problem in refused:
            scope.report((*keys, field), problem)
        if refused:
            scope.inputs[name] = None
        elif kind == "rows":
            scope.inputs[name] = _rows(scope, name, value, (*keys, "rows"))
        elif kind == "configMap":
            scope.inputs[name] = _config_map(scope, name, value, (*keys, "configMap"))
        elif kind == "output":
            scope.inputs[name] = _output(scope, name, spec, (*keys, "output"))
        else:
            scope.inputs[name] = _named(scope, name, spec, kind, text)


def _rows(
    scope: CompileContext, name: str, rows: list[dict[str, Any]], keys: Keys
) -> InputEntry | None:
    size = json_size(rows)
    if size > scope.limits.rows_bytes:
        scope.report(
            keys,
            f"about {size} bytes of rows, of at most {scope.limits.rows_bytes};"
            " put them into a file and write dataset: ./file.jsonl",
        )
    columns = _known(scope, name) or _columns_of(rows)
    reference = scope.uploads.get(name)
    if reference is None:
        if not scope.validate_only:
            scope.report(keys, "the rows were not uploaded before the workflow was compiled")
        reference = _placeholder("dataset", name)
    source = ArtifactSource("dataset", reference)
    return InputEntry("dataset", source, columns=columns)


def _config_map(scope: CompileContext, name: str, given: ConfigMapKey, keys: Keys) -> InputEntry:
    """The operator stores a ConfigMap's content before it submits the workflow."""
    reference = scope.uploads.get(name)
    if reference is None:
        if not scope.validate_only:
            scope.report(
                keys,
                f"{given.name}/{given.key} is in a ConfigMap, which only a cluster's operator"
                f" reads; here write dataset: ./{given.key}",
            )
        reference = _placeholder("dataset", name)
    return InputEntry("dataset", ArtifactSource("dataset", reference), columns=_known(scope, name))


def _output(scope: CompileContext, name: str, spec: InputSpec, keys: Keys) -> InputEntry | None:
    """The control plane looks up what a run has published before it compiles the workflow."""
    reference = scope.uploads.get(name)
    if reference is None:
        if not scope.validate_only:
            scope.report(keys, "the output was not looked up before the workflow was compiled")
        return None  # its kind is not known
    kind = read_reference(reference).kind
    if kind != "dataset" and (spec.limit is not None or spec.columns is not None):
        scope.report(keys, f"limit and columns belong to a dataset; this is a {kind}")
        return None
    entry = InputEntry(kind, ArtifactSource(kind, reference), columns=_known(scope, name))
    return _selected(scope, name, spec, entry)


def _named(
    scope: CompileContext, name: str, spec: InputSpec, kind: str, text: str
) -> InputEntry | None:
    keys: Keys = ("spec", "inputs", name, kind)
    if is_local(text):
        return _selected(scope, name, spec, _uploaded(scope, name, kind, text, keys))
    if text.startswith(REFERENCE_PREFIX):
        return _selected(scope, name, spec, _referred(scope, name, kind, text, keys))
    params = _address(scope, kind, text + (f"@{spec.revision}" if spec.revision else ""), keys)
    return None if params is None else _imported(scope, name, spec, kind, params)


def _selected(
    scope: CompileContext, name: str, spec: InputSpec, entry: InputEntry | None
) -> InputEntry | None:
    """Adds the step that takes some rows and columns of stored content, where some are chosen."""
    if entry is None or (spec.limit is None and spec.columns is None):
        return entry
    engine, port = _ENGINES[entry.kind]
    contract = scope.catalog.newest(engine)
    keys: Keys = ("spec", "inputs", name)
    if contract is None:
        scope.report(keys, f"no engine that selects rows is installed ({engine!r} is missing)")
        return None
    for i, column in enumerate(spec.columns or ()):
        if entry.columns is not None and column not in entry.columns:
            hint = did_you_mean(column, sorted(entry.columns))
            scope.report((*keys, "columns", i), f"no column {column!r} in the rows{hint}")
    params = {"uri": STORED, **_selection(spec)}
    edge = Edge(port, PortKind.DATASET.value, (entry.source,))
    step = _step(f"inputs.{name}", contract, params, edges=(edge,))
    columns = _chosen(spec, entry.columns)
    return InputEntry(entry.kind, StepSource(step.path, port), (step,), columns)


def _chosen(spec: InputSpec, known: Columns) -> Columns:
    """The columns that are taken, of those that are there."""
    if spec.columns is None:
        return known
    return {name: (known or {}).get(name) for name in spec.columns}


def _selection(spec: InputSpec) -> dict[str, Any]:
    given = {"limit": spec.limit, "columns": spec.columns}
    return {name: value for name, value in given.items() if value is not None}


def _referred(
    scope: CompileContext, name: str, kind: str, text: str, keys: Keys
) -> InputEntry | None:
    """Content that is already in the store, of the kind that its reference names."""
    try:
        issued_as = read_reference(text).kind
    except InvalidReferenceError as e:
        scope.report(keys, f"{e.message}; {e.remedy}")
        return None
    if issued_as != kind:
        scope.report(keys, f"the reference is of kind {issued_as}; expected one of kind {kind}")
        return None
    return InputEntry(kind, ArtifactSource(kind, text), columns=_known(scope, name))


def _uploaded(scope: CompileContext, name: str, kind: str, text: str, keys: Keys) -> InputEntry:
    reference = scope.uploads.get(name)
    if reference is None:
        if not scope.validate_only:
            scope.report(
                keys,
                f"{text} is a local file, and only fmesh uploads files (run, submit, serve,"
                " services manifest); here use s3://, https://, hf://, a cas: reference or, for a"
                " small data set, rows",
            )
        reference = _placeholder(kind, name)
    return InputEntry(kind, ArtifactSource(kind, reference), columns=_known(scope, name))


def _placeholder(kind: str, name: str) -> str:
    """Stands for content that is not uploaded, in plans that never run; unique per input."""
    return f"{REFERENCE_PREFIX}{kind}:{digest_bytes(name.encode())}.{'0' * 34}"


def _known(scope: CompileContext, name: str) -> Columns:
    """None also for a data set without rows and columns, since nothing is read from it."""
    given = scope.columns.get(name, ())
    if isinstance(given, Mapping):
        return {column: ColumnType(kind) for column, kind in given.items()} or None
    return dict.fromkeys(given) or None


def _columns_of(rows: list[dict[str, Any]]) -> Columns:
    """The columns of rows in the file; a mixture of types is reported when they are stored."""
    try:
        return dict(infer_schema(rows).types()) or None
    except IdentityError:
        return dict.fromkeys(column for row in rows for column in row) or None


def _address(scope: CompileContext, kind: str, text: str, keys: Keys) -> dict[str, str] | None:
    """The import's parameters, or None with a problem reported."""
    if text.startswith("hf://"):
        return _hub(scope, kind, text, keys)
    if kind != "dataset" and text.startswith("https://"):
        scope.report(
            keys,
            f"{text}: {kind}s are directories, and https:// gives one file; use a bucket (s3://), a"
            " hub (hf://) or ./DIR",
        )
        return None
    if text.startswith(_REMOTE):
        return {"uri": text}
    if "://" in text:
        scheme = text.partition("://")[0]
        scope.report(keys, f"cannot import from {scheme}://; use s3://, https:// or hf://")
        return None
    builtin = BUILTIN_MODELS if kind == "model" else {}
    if text in builtin:
        return {"uri": f"{BUILTIN_PREFIX}{text}"}
    scope.report(
        keys,
        f"no built-in {kind} {text!r} (a file or directory is written ./{text}, a hub's"
        f" hf://org/name){did_you_mean(text, builtin)}",
    )
    return None


def _hub(scope: CompileContext, kind: str, text: str, keys: Keys) -> dict[str, str] | None:
    try:
        address = read_hub_address(text, dataset=kind == "dataset")
    except HubAddressError as e:
        scope.report(keys, str(e))
        return None
    if address.fixed:
        return {"uri": address.unpinned, "revision": address.revision}
    return {"uri": address.uri}


def _imported(
    scope: CompileContext, name: str, spec: InputSpec, kind: str, params: dict[str, str]
) -> InputEntry | None:
    """The steps that import content: one that resolves a name that may change, and the import."""
    engine, port = _ENGINES[kind]
    contract, resolve = scope.catalog.newest(engine), scope.catalog.newest(RESOLVE)
    if contract is None or resolve is None:
        scope.report(
            ("spec", "inputs", name, kind),
            f"no engine that imports {kind}s is installed ({engine!r} is missing); upload it as"
            " ./path, or give its cas: reference",
        )
        return None
    path = f"inputs.{name}"
    fixed = params["uri"].startswith(BUILTIN_PREFIX) or "revision" in params
    secrets = tuple(with_place(s, scope.workflow.spec.secrets) for s in spec.secrets)
    steps: tuple[StepPlan, ...] = ()
    edges: tuple[Edge, ...] = ()
    part = {n: v for n in ("config", "split") if (v := getattr(spec, n)) is not None}
    given: dict[str, Any] = {**params, **_selection(spec)}
    if fixed:
        given |= part
    else:
        pin = pin_path(name)
        pin_params = {"uri": params["uri"], "kind": kind, **part}
        steps = (_step(pin, resolve, pin_params, secrets=secrets, reuse="run"),)
        edges = (Edge("pin", PortKind.BLOB.value, (StepSource(pin, "pin"),)),)
    step = _step(path, contract, given, edges=edges, secrets=secrets)
    columns = _chosen(spec, _known(scope, name))
    return InputEntry(kind, StepSource(path, port), (*steps, step), columns)


def _step(
    path: str,
    contract: EngineContract,
    given: Mapping[str, Any],
    *,
    edges: tuple[Edge, ...] = (),
    secrets: tuple[str, ...] = (),
    reuse: str = "always",
) -> StepPlan:
    params = {p.name: given.get(p.name, default_of(p)) for p in contract.params}
    return StepPlan(
        path=path,
        name=path,
        engine=contract.name,
        contract=contract.version,
        implementation=contract.implementation,
        params=params,
        fields={},
        edges=edges,
        cache=Cache(reuse=reuse),
        # An input has no field for a timeout, and a large model takes long, so it gets the maximum.
        timeout_s=contract.max_timeout_s,
        secrets=secrets,
        minor=needed_minor(contract, params, {}),
    )
