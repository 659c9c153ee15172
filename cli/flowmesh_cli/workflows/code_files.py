"""Reads the code of a service's Python components from files beside it.

Called for every command that reads the file of a service, so that all of them find its mistakes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flowmesh_api.v1.problems import Problem
from flowmesh_documents.paths import path_text


@dataclass(frozen=True, slots=True)
class CodeFiles:
    """What was read.

    Attributes:
        files: the file of each component whose code was read, as the service names it.
        problems: files that cannot be read.
    """

    files: dict[str, str]
    problems: tuple[Problem, ...]

    def named(self, problem: Problem) -> Problem:
        """Returns a problem of code that was read with the file that has it."""
        for name, file in self.files.items():
            code, function = _field(name, "code"), _field(name, "function")
            if problem.path in (code, function):
                path = _field(name, "file") if problem.path == code else function
                return replace(problem, path=path, message=f"{file}: {problem.message}")
        return problem


def read_code_files(service: Any, folder: Path) -> CodeFiles:
    """Replaces the file of each Python component by its content, where it can be read.

    Args:
        service: the document, of any form; it is changed.
        folder: in which relative paths start.
    """
    files: dict[str, str] = {}
    problems: list[Problem] = []
    for name, python in _components_of_files(service):
        file = python["file"]
        try:
            python["code"] = (folder / file).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            message = _unreadable(folder / file, error)
            problems.append(Problem(_field(name, "file"), message))
            continue
        files[name] = python.pop("file")
    return CodeFiles(files, tuple(problems))


def _field(component: str, field: str) -> str:
    return path_text(("spec", "components", component, "python", field))


def _components_of_files(service: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    spec = service.get("spec") if isinstance(service, dict) else None
    components = spec.get("components") if isinstance(spec, dict) else None
    for name, component in components.items() if isinstance(components, dict) else ():
        python = component.get("python") if isinstance(component, dict) else None
        if not isinstance(python, dict) or "code" in python:
            continue
        if isinstance(python.get("file"), str):
            yield str(name), python


def _unreadable(path: Path, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{path} does not exist"
    if isinstance(error, IsADirectoryError):
        return f"{path} is a folder: expected a file of Python"
    if isinstance(error, UnicodeDecodeError):
        return f"{path} is not UTF-8 at byte {error.start}: save it as UTF-8"
    why = error.strerror if isinstance(error, OSError) else str(error)
    return f"{path} cannot be read: {why}"
