"""Reads the local data sets of a document, so that a wrong row is known before the upload."""

from pathlib import Path
from typing import Any

from flowmesh_api.v1.problems import Problem
from flowmesh_cli.errors import path_error
from flowmesh_core.errors import FlowMeshError
from flowmesh_sdk.local_inputs import local_inputs, local_path

_READ_BYTES_MAX = 64 << 20
"""Larger files of rows are checked by the upload, which reads them too."""


def read_columns(
    document: dict[str, Any], folder: Path
) -> tuple[dict[str, dict[str, str]], list[Problem]]:
    """Returns the columns of local data sets with their types, by the input's name.

    Args:
        document: a workflow or a service, also one with mistakes.
        folder: of its file, in which relative paths start.

    Returns:
        The columns, and a problem for each file that is not in the format of its suffix.
    """
    from flowmesh_store.datasets import read_rows_file, rows_schema  # noqa: PLC0415 - slow to load

    found: dict[str, dict[str, str]] = {}
    problems: list[Problem] = []
    for name, kind, text in local_inputs(document.get("spec")):
        if kind != "dataset":
            continue
        path = local_path(text, folder)
        try:
            if path.stat().st_size > _READ_BYTES_MAX:
                continue
            schema = rows_schema(read_rows_file(path.name, path.read_bytes()))
        except (OSError, FlowMeshError) as e:
            reason = (path_error(e, path) or e) if isinstance(e, OSError) else e
            problems.append(Problem(f"spec.inputs.{name}.{kind}", str(reason)))
        else:
            found[name] = {column: str(kind) for column, kind in schema.types().items()}
    return found, problems
