"""``python -m flowmesh_operator.crds [FOLDER]``: applies the custom resource definitions.

The chart's pre-upgrade hook runs it, because Helm installs definitions and never updates them.
Without a folder it applies those of this release.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import kubernetes
import yaml

from flowmesh_core import spec
from flowmesh_core.errors import FlowMeshError
from flowmesh_operator.kube.connection import load_configuration

DEFINITIONS = Path(spec.__file__).parent / "crds"
"""The folder with those of this release."""
_FIELD_MANAGER = "flowmesh"
_APPLY = "application/apply-patch+yaml"
_ESTABLISHED_S = 60.0
_POLL_S = 0.2


class DefinitionsError(FlowMeshError):
    """Definitions are missing, or the API server refuses one."""


def read_definitions(folder: Path) -> list[dict[str, Any]]:
    """Returns the definitions in a folder's YAML files, in order of file names.

    Raises:
        DefinitionsError: there are none, or a file contains another kind.
    """
    found: list[dict[str, Any]] = []
    for file in sorted(folder.glob("*.yaml")):
        definition = yaml.safe_load(file.read_text(encoding="utf-8"))
        if not isinstance(definition, dict) or definition.get("kind") != "CustomResourceDefinition":
            raise DefinitionsError(
                "is not a CustomResourceDefinition", where=str(file), remedy="remove the file"
            )
        found.append(definition)
    if not found:
        raise DefinitionsError(
            "contains no definitions", where=str(folder), remedy="name the folder with crds/*.yaml"
        )
    return found


def apply_definitions(api: "kubernetes.client.ApiextensionsV1Api", folder: Path) -> list[str]:
    """Applies every definition and waits until the API server serves it; returns their names.

    Raises:
        DefinitionsError: the API server refuses one, or does not serve it in time.
    """
    definitions = read_definitions(folder)
    names = [str(definition["metadata"]["name"]) for definition in definitions]
    for name, definition in zip(names, definitions, strict=True):
        try:
            api.patch_custom_resource_definition(
                name, definition, field_manager=_FIELD_MANAGER, force=True, _content_type=_APPLY
            )
        except kubernetes.client.ApiException as e:
            raise DefinitionsError(
                f"the API server refuses it: {e.status} {e.reason}: {e.body}",
                where=name,
                remedy="keep every version that stored objects have (status.storedVersions)",
            ) from e
    for name in names:
        _await_established(api, name)
    return names


def _await_established(api: "kubernetes.client.ApiextensionsV1Api", name: str) -> None:
    deadline = time.monotonic() + _ESTABLISHED_S
    while not _established(api.read_custom_resource_definition(name).to_dict()):
        if time.monotonic() > deadline:
            raise DefinitionsError(
                f"is not served after {_ESTABLISHED_S:.0f} s",
                where=name,
                remedy=f"kubectl describe crd {name}",
            )
        time.sleep(_POLL_S)


def _established(definition: Mapping[str, Any]) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def main(arguments: Sequence[str]) -> int:
    """Applies the definitions of a folder, or of this release; returns the exit code."""
    if len(arguments) > 1:
        sys.stderr.write("usage: python -m flowmesh_operator.crds [FOLDER]\n")
        return 2
    try:
        load_configuration()
        api = kubernetes.client.ApiextensionsV1Api()
        folder = Path(arguments[0]) if arguments else DEFINITIONS
        for name in apply_definitions(api, folder):
            sys.stdout.write(f"{name} is up to date\n")
    except FlowMeshError as e:
        sys.stderr.write(f"{e}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
