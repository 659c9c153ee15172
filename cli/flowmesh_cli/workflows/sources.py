"""Reads workflow files with their line numbers, namespaces and overridden parameters.

The document is stored with its positions, so that every problem, also one that admission finds
later, is shown as ``file:line:column``.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flowmesh_api.v1.problems import Problem
from flowmesh_cli.errors import CliError, FilesError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.workflows.code_files import read_code_files
from flowmesh_cli.workflows.row_files import read_columns
from flowmesh_cli.workflows.selection import WorkflowSelection
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.graph.plan import Plan
from flowmesh_core.graph.validate import check_loaded
from flowmesh_core.openai.stage_check import stage_problems
from flowmesh_core.spec.declarations import given_problems
from flowmesh_core.spec.load import Object, load_document, read_documents
from flowmesh_core.spec.policy import FlowMeshCachePolicy
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.spec.workflow import FlowMeshWorkflow
from flowmesh_documents.document import Document
from flowmesh_documents.local_paths import is_local
from flowmesh_documents.parameters import ParameterError, missing_value, read_value, with_value
from flowmesh_documents.paths import path_keys
from flowmesh_sdk.local_inputs import missing_files
from flowmesh_sdk.workflow import replaced_input

STANDARD_INPUT = "-"
_WITH_INPUTS = ("FlowMeshWorkflow", "FlowMeshService")


@dataclass(slots=True)
class Source:
    """One object of a file.

    Attributes:
        file: the file's name as the user gave it; relative paths start from ``folder``.
        document: its values and their positions.
        workflow, policy: the validated object; at most one of them is set.
        uploads: references of uploaded local inputs, by the input's name.
        plan: the compiled workflow, without uploads; None where it was not compiled.
    """

    file: str
    folder: Path
    document: Document
    workflow: FlowMeshWorkflow | None = None
    policy: FlowMeshCachePolicy | None = None
    uploads: dict[str, str] = field(default_factory=dict)
    plan: Plan | None = None

    @property
    def title(self) -> str:
        """Tenant and name of the workflow."""
        metadata = self.document.value["metadata"]
        return f"{metadata.get('namespace', 'default')}/{metadata['name']}"

    def lines(self, problems: Iterable[Problem]) -> list[str]:
        """Formats problems as ``file:line:column: field: message``, in order of line."""
        return [line for _, line in self.numbered(problems)]

    def numbered(self, problems: Iterable[Problem]) -> list[tuple[int, str]]:
        """Formats problems as :meth:`lines`, each after the number of its line."""
        located = sorted(map(self.document.locate, problems), key=lambda p: (p.line, p.column))
        return [(p.line, problem_line(self.file, p)) for p in located]

    def row_problems(self) -> list[Problem]:
        """Returns what is wrong in the rows of local data sets; missing files are not reported."""
        if not _has_inputs(self.document.value):
            return []
        missing = {p.path for p in missing_files(self.document.value, self.folder)}
        _, problems = read_columns(self.document.value, self.folder)
        return [p for p in problems if p.path not in missing]

    def unmeetable(self, refusals: str) -> FilesError:
        """Returns the error for terms that cannot be met.

        Args:
            refusals: the control plane's, such as ``spec.budgetUsd: at least …; spec.deadline: …``.
        """
        fields = (text.partition(": ") for text in re.split(r"; (?=spec\.)", refusals))
        lines = self.lines(Problem(path, message) for path, _, message in fields)
        return FilesError(lines, ExitCode.REFUSED)

    def refused_lines(self, problems: Iterable[Problem]) -> list[str]:
        """Formats problems that the fabric found after this command had found none."""
        return self.lines(map(_unknown_to_fabric, problems))


def _unknown_to_fabric(problem: Problem) -> Problem:
    """Says of an engine that is installed here alone what the fabric needs to know it."""
    if not problem.message.startswith("no engine "):
        return problem
    missing = problem.message.partition(";")[0]
    text = f"{missing} in the running fabric, though it is installed here"
    remedy = "restart the fabric of this machine; a cluster needs it in its images"
    return replace(problem, message=f"{text}; {remedy}")


def problem_line(file: str, problem: Problem) -> str:
    """Formats a problem as compilers do, so that editors find the place."""
    place = f"{file}:{problem.line}:{problem.column}" if problem.line else file
    path = f" {problem.path}:" if problem.path else ""
    return f"{place}:{path} {problem.message}"


@dataclass(frozen=True, slots=True)
class Sources:
    """All objects of the files of a command, in order."""

    workflows: list[Source]
    policies: list[Source]
    pools: list[Source]
    quotas: list[Source]
    services: list[Source]


@dataclass(frozen=True, slots=True)
class _File:
    """A file's documents, with the problems of its text."""

    name: str
    folder: Path
    documents: list[Document]
    problems: list[Problem]

    def workflows(self) -> list[dict[str, Any]]:
        """Returns the values of its workflows, unchecked."""
        values = (d.value for d in self.documents)
        return [v for v in values if isinstance(v, dict) and v.get("kind") == "FlowMeshWorkflow"]


def read_sources(chosen: WorkflowSelection) -> Sources:
    """Reads files, sets what options give, and validates the result.

    Args:
        chosen: the files, their namespaces and settings.

    Raises:
        FilesError: lists every problem in the files, or every wrong value of an option.
        CliError: a file cannot be read, or an option matches no workflow.
    """
    files = [_read_file(file) for file in chosen.files]
    workflows = [w for file in files for w in file.workflows()]
    try:
        _assign_namespaces(workflows, chosen.namespaces or ())
        _set_parameters(workflows, chosen.settings or ())
        _replace_inputs(workflows, chosen.inputs or ())
    except CliError:
        if not any(file.problems for file in files):
            raise  # else the option may match a document that cannot be read
    checked = [_check_file(file) for file in files]
    if any(lines for _, lines in checked):
        # Rows are read here for refused files only; others are compiled with their columns.
        for found, lines in checked:
            lines += [line for source in found for line in source.numbered(source.row_problems())]
        raise FilesError([line for _, lines in checked for _, line in sorted(lines)])
    sources = [source for found, _ in checked for source in found]
    others = {
        kind: [s for s in sources if s.document.value.get("kind") == kind]
        for kind in ("FlowMeshWorkerPool", "FlowMeshQuota", "FlowMeshService")
    }
    return Sources(
        [s for s in sources if s.workflow is not None],
        [s for s in sources if s.policy is not None],
        *others.values(),
    )


def need_workflows(sources: Sources) -> list[Source]:
    """Returns the workflows.

    Raises:
        CliError: there are none.
    """
    if not sources.workflows:
        raise CliError(
            "the files contain no FlowMeshWorkflow",
            ExitCode.USAGE,
            remedy="set cache policies with `fmesh policies set`",
        )
    return sources.workflows


def _read_file(file: Path) -> _File:
    name = str(file)
    if file.suffix == ".jsonl":
        raise CliError(
            "rows or batch requests, not a workflow",
            ExitCode.USAGE,
            where=name,
            remedy="of OpenAI's batch requests `fmesh plan FILE` shows the cost, and OpenAI's "
            "client starts them on `fmesh up` (docs/openai-batch.md); rows are an input of a "
            f"workflow, such as dataset: ./{file.name}",
        )
    documents, problems = read_documents(text_of(file))
    folder = Path.cwd() if name == STANDARD_INPUT else file.absolute().parent
    return _File(name, folder, documents, problems)


def _check_file(file: _File) -> tuple[list[Source], list[tuple[int, str]]]:
    """Returns the objects of a file, and its problems with their lines."""
    catalog = load_catalog()
    lines = [(p.line, problem_line(file.name, p)) for p in file.problems]
    sources = []
    for document in file.documents:
        found, wrong = read_object_of(document, file.folder, catalog)
        wrong = [_with_option(p) for p in wrong]
        lines += [(p.line, problem_line(file.name, p)) for p in wrong]
        sources.append(
            Source(
                file.name,
                file.folder,
                document,
                workflow=found if isinstance(found, FlowMeshWorkflow) else None,
                policy=found if isinstance(found, FlowMeshCachePolicy) else None,
            )
        )
    return sources, lines


def _has_inputs(value: Any) -> bool:
    return isinstance(value, dict) and value.get("kind") in _WITH_INPUTS


def read_object_of(
    document: Document, folder: Path, catalog: Catalog
) -> tuple[Object | None, list[Problem]]:
    """Returns the object of a document, and all its problems, located.

    Args:
        document: of which a service gets the code of its files in their place.
        folder: of the file, in which relative paths start.
        catalog: the known engines.
    """
    value = document.value
    is_service = isinstance(value, dict) and value.get("kind") == "FlowMeshService"
    code = read_code_files(value if is_service else None, folder)
    item = load_document(document)
    found = item.object
    wrong = [code.named(p) for p in check_loaded(item, catalog, check_call=stage_problems)]
    wrong += map(document.locate, code.problems)
    if _has_inputs(value):
        wrong += [document.locate(p) for p in missing_files(value, folder)]
    return found, wrong


def _with_option(problem: Problem) -> Problem:
    """Asks for a missing parameter as an option, where a value in the file is asked for."""
    name = str((path_keys(problem.path) or ("",))[-1])
    if problem.message != missing_value(name):
        return problem
    return replace(problem, message=missing_value(name, f"--set {name}=..."))


def text_of(file: Path) -> str:
    """Returns the text of a file, or of the standard input.

    Raises:
        CliError: it cannot be read.
    """
    try:
        if str(file) == STANDARD_INPUT:
            return sys.stdin.read()
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as e:
        raise CliError(
            f"not UTF-8 at byte {e.start}",
            ExitCode.USAGE,
            where=str(file),
            remedy="save it as UTF-8",
        ) from e
    except OSError as e:
        raise CliError(
            f"cannot be read: {e.strerror}",
            ExitCode.USAGE,
            where=str(file),
            remedy="check the path",
        ) from e


def _assign_namespaces(workflows: Sequence[dict[str, Any]], namespaces: Sequence[str]) -> None:
    if not namespaces:
        return
    given = list(namespaces) * len(workflows) if len(namespaces) == 1 else list(namespaces)
    if len(given) != len(workflows):
        raise CliError(
            f"{len(namespaces)} namespaces for {len(workflows)} workflows",
            ExitCode.USAGE,
            where="--namespace",
            remedy="give one for all workflows, or one for each in order of the files",
        )
    for workflow, namespace in zip(workflows, given, strict=True):
        if isinstance(metadata := workflow.get("metadata"), dict):
            metadata["namespace"] = namespace


def _set_parameters(workflows: Sequence[dict[str, Any]], settings: Sequence[str]) -> None:
    """Sets parameters to texts, read by the types that the workflows declare.

    Raises:
        FilesError: lists every name that no workflow has or that is set more than once, and every
            value that its parameter cannot have.
    """
    wrong: list[str] = []
    done: set[str] = set()
    for setting in settings:
        try:
            name, text = _pair(setting, "--set", "param=value")
        except CliError as e:
            wrong.append(f"--set: {e.message}")
            continue
        problems = ["set more than once"] if name in done else _set(workflows, name, text)
        wrong += [f"--set {name}: {problem}" for problem in problems]
        done.add(name)
    if wrong:
        raise FilesError(list(dict.fromkeys(wrong)))


def _set(workflows: Sequence[dict[str, Any]], name: str, text: str) -> list[str]:
    """Sets a parameter of every workflow that has it, and returns what is wrong with the text."""
    wrong: list[str] = []
    try:
        for params in _declaring(workflows, "params", name, "--set"):
            entry = params[name]
            value = read_value(name, entry, text)
            wrong += given_problems(name, entry, value)
            params[name] = with_value(entry, value)
    except ParameterError as e:
        return [*wrong, str(e)]
    except CliError as e:
        return [e.message]
    return wrong


def _replace_inputs(workflows: Sequence[dict[str, Any]], given: Sequence[str]) -> None:
    """Replaces inputs; relative paths start from the folder of the command.

    Raises:
        CliError: no workflow has such an input.
    """
    for replacement in given:
        name, text = _pair(replacement, "--input", "input=source")
        path = is_local(text) and not text.startswith("file:")
        source = str(Path(text).expanduser().absolute()) if path else text
        for inputs in _declaring(workflows, "inputs", name, "--input"):
            inputs[name] = replaced_input(inputs[name], source)


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise CliError(f"{text!r} is not of the form {form}", ExitCode.USAGE, where=option)
    return name, value


def _declaring(
    workflows: Sequence[dict[str, Any]], field: str, name: str, option: str
) -> list[dict[str, Any]]:
    """Returns the parameters or inputs of the workflows that have one of this name.

    Raises:
        CliError: none has.
    """
    specs = [spec for w in workflows if isinstance(spec := w.get("spec"), dict)]
    declared = [values for spec in specs if isinstance(values := spec.get(field), dict)]
    found = [values for values in declared if name in values]
    if not found:
        known = sorted({n for values in declared for n in values})
        raise CliError(
            f"no workflow has spec.{field}.{name}{did_you_mean(name, known)}",
            ExitCode.USAGE,
            where=option,
        )
    return found
