"""Which rows of a data set an input takes: config, split, revision, limit and columns.

Called by ``external``. The workers that resolve and import read the same fields as parameters.
"""

from collections.abc import Iterator

from flowmesh_core.catalog.hub_addresses import SCHEME, HubAddressError, read_hub_address
from flowmesh_core.sharing import REFERENCE_PREFIX
from flowmesh_core.spec.inputs import InputSpec
from flowmesh_documents.local_paths import is_local

_OF_HUB = ("config", "split")
_OF_ADDRESS = (*_OF_HUB, "revision")
_OF_ROWS = ("limit", "columns")
_SCHEMES = {SCHEME: "hf://", "s3://": "s3://", "https://": "https://"}
_FIXED = {"rows": "these are rows in the file itself", "configMap": "a ConfigMap is read whole"}


def selection_problems(spec: InputSpec, kind: str, text: str) -> Iterator[tuple[str, str]]:
    """Yields fields that an input cannot have, each with the reason.

    Args:
        spec: the input.
        kind: its source: ``dataset``, ``model``, ``adapter``, ``rows``, ``configMap`` or
            ``output``.
        text: its address; empty where it has none.
    """
    for name in (*_OF_ADDRESS, *_OF_ROWS):
        if getattr(spec, name) is None:
            continue
        if kind in _FIXED:
            yield name, f"{name} belongs to a dataset; {_FIXED[kind]}"
        elif name == "revision" and text.startswith(SCHEME):
            if "@" in text:
                yield name, f"{text} names a revision already; leave one of the two out"
        elif name in _OF_ADDRESS and (kind != "dataset" or not text.startswith(SCHEME)):
            owner = "a Hugging Face address" if name == "revision" else "a Hugging Face data set"
            yield name, f"{name} belongs to {owner}; this is {_shown(kind, text)}"
        elif name in _OF_HUB and _names_a_file(text):
            yield name, f"{name} chooses among files, but the address names one"
        elif kind not in ("dataset", "output"):
            yield name, f"{name} belongs to a dataset; this is a {kind}"
    yield from _value_problems(spec, kind)


def _value_problems(spec: InputSpec, kind: str) -> Iterator[tuple[str, str]]:
    if "[" in (spec.split or ""):
        text = f"{spec.split!r} is a slice; write the split alone, and the number of rows in limit"
        yield "split", text
    if kind in ("dataset", "output") and len({*(spec.columns or ())}) < len(spec.columns or ()):
        yield "columns", "a column is listed twice"


def _names_a_file(text: str) -> bool:
    try:
        return bool(read_hub_address(text, dataset=True).file)
    except HubAddressError:
        return False  # reported where the address is read


def _shown(kind: str, text: str) -> str:
    if kind != "dataset":
        return "an output of a run" if kind == "output" else f"a {kind}"
    if is_local(text):
        return "a local file"
    if text.startswith(REFERENCE_PREFIX):
        return "a reference"
    return next((shown for scheme, shown in _SCHEMES.items() if text.startswith(scheme)), text)
