"""Uploads local inputs of workflows (``./questions.jsonl``, ``./model``) to the fabric."""

from flowmesh_api.v1.problems import Problem
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.errors import CliError, FilesError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.workflows.sources import Source
from flowmesh_core.errors import SpecError
from flowmesh_sdk.local_inputs import local_inputs, local_path, upload

_NOT_OF_THE_FILE = (ExitCode.NO_FABRIC, ExitCode.REFUSED, ExitCode.INTERNAL)


def upload_inputs(http: ApiClient, source: Source) -> None:
    """Uploads a workflow's local inputs and records their references in ``source``.

    Raises:
        FilesError: files are missing or of the wrong kind; lists all of them.
        CliError: the fabric does not answer, or the user may not upload to the namespace.
    """
    metadata = source.document.value["metadata"]
    if http.default_namespace:
        metadata.setdefault("namespace", http.default_namespace)
    namespace = metadata.get("namespace", "default")
    problems: list[Problem] = []
    for name, kind, text in local_inputs(source.document.value["spec"]):
        path = local_path(text, source.folder)
        where = f"spec.inputs.{name}.{kind}"
        try:
            source.uploads[name] = upload(http, path, kind, namespace).reference
        except SpecError as e:
            problems += [Problem(where, p.message) for p in e.problems]
        except OSError as e:
            problems.append(Problem(where, f"{path}: {e.strerror or e}"))
        except CliError as e:
            if e.code in _NOT_OF_THE_FILE:
                raise
            problems.append(Problem(where, str(e)))
    if problems:
        raise FilesError(source.lines(problems))
