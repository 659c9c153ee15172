"""What one ``fmesh serve`` offers: a service for each model, and the services of files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.verbs.service_adapters import OPTION, ServedAdapter, read_adapters
from flowmesh_cli.verbs.service_document import (
    INPUT,
    model_name,
    refuse_problems,
    require_models,
    service_document,
    service_name,
)
from flowmesh_cli.verbs.service_files import is_service_file, read_service
from flowmesh_core.protocol.router_services import ServiceEntry
from flowmesh_core.serving.router_entry import router_entry
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_documents.local_paths import is_local
from flowmesh_sdk.local_inputs import InputUpload, local_path

_DEFAULT_NAMESPACE = "default"
_CHAT, _EMBEDDINGS = "/chat/completions", "/embeddings"
_EXAMPLE_TOKENS = 64


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What is served, and how.

    Attributes:
        models: built-in names, addresses, local folders, or files of services.
        namespace: of the services; empty for the default, or for that of a file.
        dtype: to load the models in; empty for the engine's default.
        embeddings: whether the models answer embeddings, in place of chats and completions.
        tool_parser: vLLM's parser of the models' tool calls; empty for none.
        adapters: of the one model, each as ``NAME=PATH_OR_OUTPUT``.
    """

    models: tuple[str, ...]
    namespace: str = ""
    dtype: str = ""
    embeddings: bool = False
    tool_parser: str = ""
    adapters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceOffer:
    """A service of this command.

    Attributes:
        document: what is applied.
        entry: what the router offers.
        path: where it takes requests, below the base URL.
        example: a request.
        uploads: its inputs that are files or folders here, and are uploaded first.
        model: as the user named it; empty for the service of a file.
    """

    document: dict[str, Any]
    entry: ServiceEntry
    path: str
    example: dict[str, Any]
    uploads: tuple[InputUpload, ...]
    model: str = ""

    @property
    def namespace(self) -> str:
        """The service's namespace."""
        return self.entry.service.partition("/")[0]

    @property
    def name(self) -> str:
        """The service's name in its namespace."""
        return self.entry.service.partition("/")[2]


def offers_of(chosen: ServeOptions) -> list[ServiceOffer]:
    """Returns the services, in the order in which they were named.

    Raises:
        CliError: a file cannot be read or is not a service, or a model or an adapter cannot be
            served.
    """
    adapters = read_adapters(chosen.adapters, chosen.models)
    if adapters and is_service_file(chosen.models[0]):
        raise CliError(
            "a service file names its adapters itself",
            ExitCode.USAGE,
            where=OPTION,
            remedy="write them in `adapters` of its component",
        )
    require_models(tuple(m for m in chosen.models if not is_service_file(m)))
    models = tuple(dict.fromkeys(chosen.models))
    offers = [
        _of_file(given, chosen) if is_service_file(given) else _of_model(given, chosen, adapters)
        for given in models
    ]
    _refuse_equal_names(models, offers)
    return offers


def _refuse_equal_names(models: Sequence[str], offers: Sequence[ServiceOffer]) -> None:
    """Refuses two of one name: one would take the place, or the token, of the other."""
    known: dict[str, str] = {}
    for given, offer in zip(models, offers, strict=True):
        for name in (f"service {offer.entry.service}", f"model {offer.entry.model}"):
            other = known.setdefault(name, given)
            if other != given:
                raise CliError(
                    f"{name} has the same name as that of {other}",
                    ExitCode.USAGE,
                    where=given,
                    remedy="give each a name of its own, or serve them with two commands, each with"
                    " a --state-dir",
                )


def _of_model(
    model: str, chosen: ServeOptions, adapters: tuple[ServedAdapter, ...]
) -> ServiceOffer:
    namespace = chosen.namespace or _DEFAULT_NAMESPACE
    name = model_name(model)
    document = service_document(
        model, namespace, dtype=chosen.dtype, embeddings=chosen.embeddings, adapters=adapters
    )
    refuse_problems(model, document)
    entry = ServiceEntry(
        f"{namespace}/{service_name(model)}",
        name,
        tool_parser=chosen.tool_parser,
        adapters=tuple(one.name for one in adapters),
    )
    uploads = tuple(filter(None, (one.upload() for one in adapters)))
    if is_local(model):
        uploads = (InputUpload(INPUT, "model", local_path(model, Path.cwd())), *uploads)
    if chosen.embeddings:
        return ServiceOffer(
            document, entry, _EMBEDDINGS, {"model": name, "input": "Hello!"}, uploads, model
        )
    return ServiceOffer(document, entry, _CHAT, _chat(name), uploads, model)


def _of_file(given: str, chosen: ServeOptions) -> ServiceOffer:
    found = read_service(Path(given), chosen.namespace)
    entry = router_entry(found.service, found.graph)
    if found.graph is None:
        entry = msgspec.structs.replace(entry, tool_parser=chosen.tool_parser)
        return ServiceOffer(found.document, entry, _CHAT, _chat(entry.model), found.uploads)
    example = dict.fromkeys(LoadedGraph(found.graph).request_fields, "...")
    path = f"/services/{entry.service}:invoke"
    return ServiceOffer(found.document, entry, path, example, found.uploads)


def _chat(model: str) -> dict[str, Any]:
    """Returns a chat of bounded length: a small model may else write on to its context's end."""
    messages = [{"role": "user", "content": "Hello!"}]
    return {"model": model, "messages": messages, "max_tokens": _EXAMPLE_TOKENS}
