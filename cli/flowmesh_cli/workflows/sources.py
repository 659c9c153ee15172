"""Reads workflow files with their line numbers, namespaces and overridden parameters.

The document is stored with its positions, so that every problem, also one that admission finds
later, is shown as ``file:line:column``.
"""

import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flowmesh_api.v1.problems import Problem
from flowmesh_cli.errors import CliError, FilesError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.workflows.selection import WorkflowSelection
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.graph.plan import Plan
from flowmesh_core.graph.validate import check_loaded
from flowmesh_core.openai.stage_check import stage_problems
from flowmesh_core.spec.load import load_text
from flowmesh_core.spec.policy import FlowMeshCachePolicy
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.spec.workflow import FlowMeshWorkflow
from flowmesh_documents.document import Document
from flowmesh_documents.local_paths import is_local
from flowmesh_documents.scalars import RefusedScalarError, read_plain
from flowmesh_sdk.local_inputs import missing_files
from flowmesh_sdk.workflow import replaced_input

STANDARD_INPUT = "-"


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
        located = sorted(map(self.document.locate, problems), key=lambda p: (p.line, p.column))
        return [problem_line(self.file, p) for p in located]

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
    text = f"{missing} in the fabric that runs, though it is installed here"
    remedy = "start a fabric of this machine again; a cluster needs it in its images"
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


def read_sources(chosen: WorkflowSelection) -> Sources:
    """Reads and validates files.

    Args:
        chosen: the files, their namespaces and settings.

    Raises:
        FilesError: lists every problem in the files.
        CliError: a file cannot be read, or an option matches no workflow.
    """
    sources: list[Source] = []
    wrong: list[str] = []
    replaced = dict(_pair(text, "--input", "input=source") for text in chosen.inputs or ())
    for file in chosen.files:
        found, lines = _read_file(file, {f"spec.inputs.{name}." for name in replaced})
        sources += found
        wrong += lines
    if wrong:
        raise FilesError(wrong)
    workflows = [s for s in sources if s.workflow is not None]
    _assign_namespaces(workflows, chosen.namespaces or ())
    _override(workflows, chosen.settings or ())
    _replace_inputs(workflows, replaced)
    policies = [s for s in sources if s.policy is not None]
    others = {
        kind: [s for s in sources if s.document.value.get("kind") == kind]
        for kind in ("FlowMeshWorkerPool", "FlowMeshQuota", "FlowMeshService")
    }
    return Sources(workflows, policies, *others.values())


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


def _read_file(file: Path, replaced: Collection[str]) -> tuple[list[Source], list[str]]:
    """Returns the objects of a file and its problems.

    Args:
        file: its path.
        replaced: beginnings of places whose files are not looked for.
    """
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
    text = _text_of(file)
    catalog = load_catalog()
    loaded, problems = load_text(text)
    lines = [(p.line, problem_line(name, p)) for p in problems]
    folder = Path.cwd() if name == STANDARD_INPUT else file.absolute().parent
    sources = []
    for item in loaded:
        found = item.object
        wrong = check_loaded(item, catalog, check_call=stage_problems)
        if isinstance(found, FlowMeshWorkflow):
            missing = missing_files(item.document.value, folder)
            missing = [p for p in missing if not p.path.startswith(tuple(replaced))]
            wrong += [item.document.locate(p) for p in missing]
        lines += [(p.line, problem_line(name, p)) for p in wrong]
        sources.append(
            Source(
                name,
                folder,
                item.document,
                workflow=found if isinstance(found, FlowMeshWorkflow) else None,
                policy=found if isinstance(found, FlowMeshCachePolicy) else None,
            )
        )
    return sources, [line for _, line in sorted(lines)]


def _text_of(file: Path) -> str:
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


def _assign_namespaces(workflows: list[Source], namespaces: Sequence[str]) -> None:
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
    for source, namespace in zip(workflows, given, strict=True):
        source.document.value["metadata"]["namespace"] = namespace


def _override(workflows: list[Source], settings: Sequence[str]) -> None:
    for setting in settings:
        name, text = _pair(setting, "--set", "param=value")
        value = _value(name, text)
        for params in _declaring(workflows, "params", name, "--set"):
            params[name] = value


def _replace_inputs(workflows: list[Source], given: Mapping[str, str]) -> None:
    """Replaces inputs; relative paths start from the folder of the command.

    Raises:
        CliError: no workflow has such an input.
        FilesError: a file is missing, or of the wrong kind.
    """
    for name, text in given.items():
        path = is_local(text) and not text.startswith("file:")
        source = str(Path(text).expanduser().absolute()) if path else text
        for inputs in _declaring(workflows, "inputs", name, "--input"):
            inputs[name] = replaced_input(inputs[name], source)
    if given:
        missing = [(s, missing_files(s.document.value, s.folder)) for s in workflows]
        if lines := [line for s, problems in missing for line in s.lines(problems)]:
            raise FilesError(lines)


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise CliError(f"{text!r} is not of the form {form}", ExitCode.USAGE, where=option)
    return name, value


def _declaring(workflows: list[Source], field: str, name: str, option: str) -> list[dict[str, Any]]:
    """Returns the parameters or inputs of the workflows that have one of this name.

    Raises:
        CliError: none has.
    """
    declared = [s.document.value["spec"].get(field) or {} for s in workflows]
    found = [values for values in declared if name in values]
    if not found:
        known = sorted({n for values in declared for n in values})
        raise CliError(
            f"no workflow has spec.{field}.{name}{did_you_mean(name, known)}",
            ExitCode.USAGE,
            where=option,
        )
    return found


def _value(name: str, text: str) -> Any:
    try:
        return read_plain(text)
    except RefusedScalarError as e:
        raise CliError(str(e), ExitCode.USAGE, where=f"--set {name}") from e
