"""The service that ``fmesh serve`` applies for one model."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.verbs.service_adapters import OPTION, REMEDY, ServedAdapter
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.errors import SpecError
from flowmesh_core.graph.service_plan import compile_service
from flowmesh_core.spec.load import parse_object
from flowmesh_core.spec.service import FlowMeshService
from flowmesh_documents.local_paths import is_local
from flowmesh_documents.paths import path_keys
from flowmesh_sdk.local_inputs import local_path, missing_files

INPUT = "base"
_NAME_CHARS = 50
_OPTIONS: dict[tuple[str | int, ...], str] = {
    ("dtype",): "--dtype",
    ("namespace",): "--namespace",
}
"""By the last key of a field, the option that gives it."""


def service_document(
    model: str,
    namespace: str,
    *,
    dtype: str = "",
    embeddings: bool = False,
    adapters: Sequence[ServedAdapter] = (),
) -> dict[str, Any]:
    """Returns the service of one model.

    Args:
        model: a built-in name, an address or a local folder.
        namespace: of the service.
        dtype: to load the model in; empty for the engine's default.
        embeddings: whether it answers embeddings, in place of chats and completions.
        adapters: that requests may choose.
    """
    options: dict[str, Any] = {"dtype": dtype} if dtype else {}
    if embeddings:
        options |= {"implementation": "vllm", "pooling": "auto"}
    component: dict[str, Any] = {
        "uses": "llm.embed" if embeddings else "llm.generate",
        "inputs": {"model": f"inputs.{INPUT}"},
    }
    if options:
        component["with"] = options
    if adapters:
        component["adapters"] = {one.name: f"inputs.{one.input}" for one in adapters}
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": service_name(model), "namespace": namespace},
        "spec": {
            "inputs": {INPUT: {"model": model}, **{one.input: one.spec for one in adapters}},
            "components": {"llm": component},
            "openai": {"model": model_name(model)},
        },
    }


def model_name(model: str) -> str:
    """Returns a model's name in requests: a folder's name, or an address without its scheme."""
    if is_local(model):
        return local_path(model, Path.cwd()).resolve().name
    return re.sub(r"^[a-z0-9]+://", "", model).partition("@")[0]


def service_name(model: str) -> str:
    """Returns a service's name: lower case, digits and hyphens."""
    text = re.sub(r"[^a-z0-9]+", "-", model_name(model).lower()).strip("-")
    return f"m-{text}"[:_NAME_CHARS].strip("-") if not text[:1].isalpha() else text[:_NAME_CHARS]


def refuse_problems(model: str, document: dict[str, Any]) -> None:
    """Refuses the service of a model that the control plane would refuse.

    Args:
        model: as the user named it.
        document: its service.

    Raises:
        CliError: names the model, or the option that is wrong.
    """
    try:
        service = parse_object(document)
        assert isinstance(service, FlowMeshService)
        compile_service(service, load_catalog(), validate_only=True)
    except SpecError as error:
        raise refused_model(model, error) from error


def refused_model(model: str, error: SpecError) -> CliError:
    """Returns the error of a model's service in the words of its command: model or option."""
    problem = error.problems[0]
    keys = path_keys(problem.path)
    where, remedy = _OPTIONS.get(keys[-1:], model), ""
    if any(str(key).startswith("adapter") for key in keys):
        where, remedy = OPTION, REMEDY if keys[-1] == "output" else ""
    return CliError(problem.message, ExitCode.USAGE, where=where, remedy=remedy)


def require_models(models: tuple[str, ...]) -> None:
    """Refuses folders that are no models, and two models of one name.

    Raises:
        CliError: names the model.
    """
    known: dict[str, str] = {}
    for model in models:
        for problem in missing_files(service_document(model, ""), Path.cwd()):
            raise CliError(
                problem.message,
                ExitCode.USAGE,
                where=model,
                remedy="name a Hugging Face directory, such as ./model",
            )
        other = known.setdefault(service_name(model), model)
        if other != model:
            raise CliError(
                f"this model's service would have the same name as that of {other}",
                ExitCode.USAGE,
                where=model,
                remedy="serve them with two commands, each with a --state-dir",
            )
