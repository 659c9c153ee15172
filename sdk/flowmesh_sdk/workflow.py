"""A workflow: read from a file, a text or values, with parameters and inputs replaced."""

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flowmesh_api.v1.problems import Problem
from flowmesh_documents.local_paths import is_local
from flowmesh_documents.parameters import missing_value, type_problem, with_value
from flowmesh_documents.paths import path_keys
from flowmesh_sdk.client import Client, connect_for
from flowmesh_sdk.errors import (
    FlowMeshError,
    InvalidArgumentError,
    InvalidWorkflowError,
    file_errors,
    problem_line,
)
from flowmesh_sdk.forecast import Forecast
from flowmesh_sdk.run import Run

KIND = "FlowMeshWorkflow"
_SUFFIXES = (".yaml", ".yml", ".json")
Input = str | Path | Mapping[str, Any] | list[dict[str, Any]]
"""A name, path or address, as after ``model:`` or ``dataset:`` in the file; ``RUN/OUTPUT``; a
mapping, as below the input's name or of :meth:`Run.output`; or rows."""
_OTHER_SOURCES = ("rows", "configMap", "output")
_OF_ROWS = ("limit", "columns")
_REFERENCE = "cas:"
_PARAMETER_KEYS = 3  # spec.params.samples
_REMEDIES = {
    "params": "correct what params= gives; spec.params of the workflow says what each may be",
    "inputs": "correct what inputs= gives; spec.inputs of the workflow has their names",
}


class Workflow:
    """What :meth:`Client.submit` takes. Its methods use :func:`connect` where no client is given.

    Attributes:
        folder: where relative paths of its inputs start.
        file: it was read from; empty for a text or values.
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        *,
        folder: Path,
        file: str = "",
        locate: Callable[[Problem], Problem] | None = None,
    ) -> None:
        """Wraps a document; see :func:`load`.

        Args:
            document: its values.
            folder: see the attribute.
            file: see the attribute.
            locate: adds line and column to a problem.
        """
        self._document = document
        self._locate = locate
        self._given: frozenset[str] = frozenset()
        """The parameters that have values of ``with_values``, in place of the file's."""
        self.folder = folder
        self.file = file

    @property
    def name(self) -> str:
        """Its name."""
        return str(self._document.get("metadata", {}).get("name", ""))

    def to_dict(self) -> dict[str, Any]:
        """Returns a copy of the document."""
        return copy.deepcopy(dict(self._document))

    def with_values(
        self,
        *,
        params: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Input] | None = None,
    ) -> "Workflow":
        """Returns the workflow with other parameters and inputs.

        Args:
            params: values by name; each must be one of ``spec.params``, and of its type: that of
                its declaration or, of a plain value, its own.
            inputs: by name; each must be one of ``spec.inputs``. A text or path takes the place of
                the source that the file names, a list of rows that of the rows.

        Raises:
            InvalidArgumentError: the workflow declares no such parameters or inputs, or values are
                not of the types of their parameters; names all. Or JSON has no such value, such
                as NaN. What else a declaration demands, the fabric checks.
        """
        document = self.to_dict()
        spec = document.setdefault("spec", {})
        _set_parameters(spec, params or {})
        current = _named(spec.get("inputs"))
        given = {
            n: _as_json(f"inputs.{n}", replaced_input(current.get(n), value))
            for n, value in (inputs or {}).items()
        }
        _replace(spec, "inputs", given)
        made = Workflow(document, folder=self.folder, file=self.file, locate=self._locate)
        made._given = self._given | frozenset(params or ())
        return made

    def validate(self, *, client: Client | None = None) -> list[Problem]:
        """Returns every mistake; none where the fabric would accept it. Nothing runs."""
        return (client or connect_for(self)).validate(self)

    def plan(self, *, client: Client | None = None) -> Forecast:
        """Predicts what it would cost and take; raises as :meth:`Client.plan`."""
        return (client or connect_for(self)).plan(self)

    def submit(self, *, client: Client | None = None) -> Run:
        """Starts it and returns at once; raises as :meth:`Client.submit`."""
        return (client or connect_for(self)).submit(self)

    def run(
        self,
        *,
        client: Client | None = None,
        timeout_s: float | None = None,
        progress: bool | None = None,
    ) -> Run:
        """Starts it and returns when it has ended successfully.

        Ctrl-C leaves the run as :meth:`Run.leave` does; an error or time-out does not.

        Args:
            client: the fabric.
            timeout_s: raise ``RunTimeoutError`` after so many seconds; the run goes on.
            progress: whether to write a line to standard error for each step that ends; by default
                where that is a terminal.

        Raises:
            RunFailedError: it failed or was cancelled.
            RunTimeoutError: it has not ended in time.
            FlowMeshError: as :meth:`Client.submit`.
        """
        run = self.submit(client=client)
        return run.wait_or_cancel(timeout_s=timeout_s, progress=progress)

    def invalid(self, problems: Iterable[Problem]) -> InvalidWorkflowError | InvalidArgumentError:
        """Returns the error for problems, with their lines where it was read from text.

        It is about the argument where values of :meth:`with_values` are among what is wrong.
        """
        found = list(problems)
        given = [p for p in found if self._is_given(p)]
        located = self._locate or (lambda problem: problem)
        mistakes = [located(_as_in_python(p)) for p in found if p not in given]
        if not given:
            return InvalidWorkflowError(mistakes, file=self.file)
        wrong = [Problem(f"params.{_parameter(p)}", p.message) for p in given]
        lines = ["; ".join(p.message for p in wrong)]
        lines += [problem_line(p, self.file) for p in mistakes]
        return _wrong_argument("params", lines, [*wrong, *mistakes])

    def _is_given(self, problem: Problem) -> bool:
        """Whether a problem is of a value of :meth:`with_values`."""
        keys = path_keys(problem.path)
        return _parameter(problem) in self._given and keys[_PARAMETER_KEYS:] == ("default",)

    def __repr__(self) -> str:
        """Shows its name and number of steps."""
        steps = self._document.get("spec", {}).get("steps") or ()
        return f"<Workflow {self.name}: {len(steps)} step{'' if len(steps) == 1 else 's'}>"


def load(
    source: str | Path | Mapping[str, Any],
    *,
    params: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Input] | None = None,
) -> Workflow:
    """Returns a workflow.

    Args:
        source: a path of YAML or JSON; a text of it, which has more than one line; or the values.
        params: see :meth:`Workflow.with_values`.
        inputs: see :meth:`Workflow.with_values`.

    Raises:
        FileError: the file cannot be read.
        InvalidWorkflowError: the text is not YAML, or does not hold one workflow.
        InvalidArgumentError: as :meth:`Workflow.with_values`.
    """
    if isinstance(source, Mapping):
        loaded = Workflow(_as_json("load()", dict(source)), folder=Path.cwd())
    elif isinstance(source, str) and "\n" in source:
        loaded = _read(source, Path.cwd(), "")
    else:
        path = Path(source).expanduser()
        if not path.exists() and path.suffix not in _SUFFIXES:
            raise FlowMeshError(
                "this is neither a file nor a text of several lines",
                where=f"load({str(source)[:80]!r})",
                remedy="give the path of a .yaml or .json file, its text, or a dict",
            )
        loaded = _read(_text(path, str(source)), path.absolute().parent, str(source))
    return loaded.with_values(params=params, inputs=inputs) if params or inputs else loaded


def _text(path: Path, file: str) -> str:
    with file_errors(file, "give the path of a .yaml or .json file that this user may read"):
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as e:
            raise InvalidWorkflowError(
                [Problem("", f"the file is not UTF-8 text: {e.reason}", 1, 1)], file=file
            ) from e


def _read(text: str, folder: Path, file: str) -> Workflow:
    from flowmesh_documents.document import parse_documents  # noqa: PLC0415 - loads ruamel.yaml

    documents, problems = parse_documents(text)
    if problems:
        raise InvalidWorkflowError(problems, file=file)
    workflows = [d for d in documents if isinstance(d.value, dict) and d.value.get("kind") == KIND]
    if len(workflows) != 1:
        count = "none" if not workflows else f"{len(workflows)} of them"
        raise InvalidWorkflowError(
            [Problem("", f"expected one {KIND}, found {count}", 1, 1)], file=file
        )
    found = workflows[0]
    return Workflow(found.value, folder=folder, file=file, locate=found.locate)


def _set_parameters(spec: dict[str, Any], given: Mapping[str, Any]) -> None:
    declared = _named(spec.get("params"))
    given = {n: _as_json(f"params.{n}", value) for n, value in given.items()}
    wrong = [type_problem(n, declared[n], value) for n, value in given.items() if n in declared]
    values = {n: with_value(declared.get(n), value) for n, value in given.items()}
    _replace(spec, "params", values, filter(None, wrong))


def _replace(
    spec: dict[str, Any], field: str, given: Mapping[str, Any], wrong: Iterable[str] = ()
) -> None:
    """Replaces values by name.

    Raises:
        InvalidArgumentError: the workflow has no such names, or something else is wrong with them.
    """
    declared = _named(spec.get(field))
    known = f"it has {', '.join(declared)}" if declared else "it has none"
    unknown = [f"the workflow has no spec.{field}.{n}; {known}" for n in given if n not in declared]
    if problems := [*wrong, *unknown]:
        raise _wrong_argument(field, ["; ".join(problems)])
    declared.update(given)


def _named(field: Any) -> dict[str, Any]:
    """Returns a mapping by name; an empty one where a field is something else."""
    return field if isinstance(field, dict) else {}


def _as_json(where: str, value: Any) -> Any:
    """Returns a value as it is once it was sent: tuples as lists.

    Raises:
        InvalidArgumentError: JSON has no such value.
    """
    try:
        return json.loads(json.dumps(value, allow_nan=False, ensure_ascii=False).encode())
    except (TypeError, ValueError, RecursionError) as e:
        raise InvalidArgumentError(
            f"the value cannot be written as JSON: {e}",
            where=where,
            remedy="give texts, finite numbers, booleans, None, lists and dicts of these",
        ) from e


def _parameter(problem: Problem) -> str:
    """Returns the name of the parameter that a problem is of; empty if it is of none."""
    keys = path_keys(problem.path)[:_PARAMETER_KEYS]
    return str(keys[-1]) if len(keys) == _PARAMETER_KEYS and keys[:2] == ("spec", "params") else ""


def _as_in_python(problem: Problem) -> Problem:
    """Asks for a missing parameter as an argument, not as an option of the command line."""
    name = _parameter(problem)
    if problem.message != missing_value(name):
        return problem
    return replace(problem, message=missing_value(name, f"params={{{name!r}: ...}}"))


def _wrong_argument(
    name: str, lines: Iterable[str], problems: Iterable[Problem] = ()
) -> InvalidArgumentError:
    return InvalidArgumentError(
        "\n".join(lines), where=name, remedy=_REMEDIES[name], problems=list(problems)
    )


def replaced_input(current: Any, value: Input) -> dict[str, Any]:
    """Returns an input with another source.

    Args:
        current: the input as the workflow has it.
        value: see :data:`Input`.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list):
        return {"rows": value}
    named = current if isinstance(current, dict) else {}
    text = str(value)
    if isinstance(value, str) and _names_output(value):
        return {"output": value, **{k: v for k, v in named.items() if k in _OF_ROWS}}
    kinds = [k for k in ("model", "dataset", "adapter") if k in named]
    kind = kinds[0] if kinds else "dataset"
    if isinstance(value, Path) and not value.is_absolute() and not text.startswith((".", "~")):
        text = f"./{text}"
    rest = {k: v for k, v in named.items() if k not in (kind, *_OTHER_SOURCES)}
    return {**rest, kind: text}


def _names_output(text: str) -> bool:
    """Whether a text is ``RUN/OUTPUT``: no other source has this form."""
    return text.count("/") == 1 and not is_local(text) and not text.startswith(_REFERENCE)
