"""The adapters that ``fmesh serve --adapter NAME=PATH_OR_OUTPUT`` adds to a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_core.sharing import REFERENCE_PREFIX
from flowmesh_documents.local_paths import is_local
from flowmesh_sdk.local_inputs import InputUpload, local_path

OPTION = "--adapter"
REMEDY = "write NAME=./folder, or NAME=WORKFLOW/OUTPUT of a run that has succeeded"
_CONFIG = "adapter_config.json"


@dataclass(frozen=True, slots=True)
class ServedAdapter:
    """An adapter of a service.

    Attributes:
        name: by which requests choose it, as ``MODEL:NAME``.
        source: a local folder, a reference, an address, or an output of a workflow.
    """

    name: str
    source: str

    @property
    def input(self) -> str:
        """The name of the service's input that it is."""
        return f"adapter-{self.name}"

    @property
    def spec(self) -> dict[str, str]:
        """The service's input."""
        is_named = is_local(self.source) or self.source.startswith(REFERENCE_PREFIX)
        return {"adapter" if is_named or "://" in self.source else "output": self.source}

    def upload(self) -> InputUpload | None:
        """Returns what is uploaded first; None for what is not a folder here."""
        if not is_local(self.source):
            return None
        return InputUpload(self.input, "adapter", local_path(self.source, Path.cwd()))


def read_adapters(given: Sequence[str], models: Sequence[str]) -> tuple[ServedAdapter, ...]:
    """Returns the adapters of the options.

    Args:
        given: ``NAME=PATH_OR_OUTPUT`` of each option.
        models: what is served.

    Raises:
        CliError: one has another form, a name is used twice, a folder is not an adapter, or it is
            not clear which model the adapters are for.
    """
    if given and len(models) > 1:
        raise _wrong(
            "it works with one model only", "write a service file for each model with adapters"
        )
    found: dict[str, ServedAdapter] = {}
    for text in given:
        name, _, source = (part.strip() for part in text.partition("="))
        if not name or not source:
            raise _wrong(f"{text!r} is not an adapter: expected NAME=PATH_OR_OUTPUT", REMEDY)
        if name in found:
            raise _wrong(f"{name!r} is given twice", "give each adapter a name of its own")
        _require_folder(source)
        found[name] = ServedAdapter(name, source)
    return tuple(found.values())


def _require_folder(source: str) -> None:
    if not is_local(source):
        if (Path.cwd() / source / _CONFIG).is_file():
            raise _wrong(
                f"{source!r} is read as WORKFLOW/OUTPUT", f"write ./{source} to name the folder"
            )
        return
    if not (local_path(source, Path.cwd()) / _CONFIG).is_file():
        remedy = f"name a folder that PEFT has saved, with {_CONFIG} in it"
        raise _wrong(f"{source} is not an adapter: it has no {_CONFIG}", remedy)


def _wrong(message: str, remedy: str) -> CliError:
    return CliError(message, ExitCode.USAGE, where=OPTION, remedy=remedy)
