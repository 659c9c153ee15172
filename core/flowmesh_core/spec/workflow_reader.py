"""Reads a workflow of which some fields are wrong, so that the others can be checked too.

What others refer to (a step's name, an input, a matrix) gets a stand-in or is left out, and the
workflow's notes say so: the compiler reports nothing that only follows from it.
"""

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from flowmesh_core.spec.error_messages import RULE, location, problems_of
from flowmesh_core.spec.field_notes import FieldNotes, Keys
from flowmesh_core.spec.fields import API_VERSION
from flowmesh_core.spec.parameters import FilledWorkflow
from flowmesh_core.spec.workflow import FlowMeshWorkflow
from flowmesh_documents.paths import Key

if TYPE_CHECKING:
    from flowmesh_api.v1.problems import Problem

UNKNOWN_ENGINE = "?"
_ROUNDS = 4
_STAND_IN = "unnamed-step-"
_STEPS: Keys = ("spec", "steps")
_STEP_KEYS = 3  # spec.steps[0]
_INPUT_FIELD_KEYS = 4  # spec.inputs.base.model
_INDISPENSABLE: frozenset[Keys] = frozenset({(), ("kind",), ("spec",), _STEPS})
_STAND_INS: dict[Keys, Callable[[], Any]] = {
    ("apiVersion",): lambda: API_VERSION,
    ("metadata",): lambda: {"name": "unnamed"},
    ("metadata", "name"): lambda: "unnamed",
}


class WorkflowReader:
    """Reads one workflow.

    Attributes:
        problems: of its fields, after :meth:`read`.
    """

    def __init__(self, filled: FilledWorkflow) -> None:
        self.problems: list[Problem] = []
        self._document = filled.document
        self._is_copied = False
        self._origins = filled.origins
        self._left_out: set[Keys] = set()
        self._step_names: set[str] = set()
        for keys in filled.left_out:
            self._leave_out(keys)

    def read(self) -> FlowMeshWorkflow | None:
        """Returns the workflow without its wrong fields, or None where nothing useful remains."""
        for _ in range(_ROUNDS + 1):
            try:
                found = FlowMeshWorkflow.model_validate(self._document)
            except ValidationError as e:
                wrong = [(location(one), one["type"]) for one in e.errors()]
                self.problems = self.problems or problems_of(e, FlowMeshWorkflow, self._notes())
                repaired = [self._repair(keys, kind) for keys, kind in wrong]
                if not all(repaired):
                    return None
            else:
                return found.with_notes(self._notes())
        return None

    def _notes(self) -> FieldNotes:
        return FieldNotes(self._origins, frozenset(self._left_out), frozenset(self._step_names))

    def _repair(self, keys: Keys, kind: str) -> bool:
        """Leaves out what is wrong; False where nothing useful would remain."""
        if kind == "missing" and not (keys in _STAND_INS or _is_of_step(keys, "name", "uses")):
            keys = _field(keys[:-1])
        if kind == RULE or keys in _INDISPENSABLE:
            return False
        self._leave_out(keys)
        return True

    def _leave_out(self, keys: Keys) -> None:
        """Removes a field, or replaces one without which the workflow cannot be read."""
        if not self._is_copied:
            self._document, self._is_copied = copy.deepcopy(self._document), True
        keys = _field(keys)
        self._left_out.add(keys)
        inner = self._document
        for key in keys[:-1]:
            try:
                inner = inner[key]
            except (KeyError, IndexError, TypeError):
                return
        if keys in _STAND_INS:
            inner[keys[-1]] = _STAND_INS[keys]()
        elif _is_of_step(keys, "uses"):
            inner["uses"] = UNKNOWN_ENGINE
        elif _is_of_step(keys, "name"):
            name = inner.get("name")
            self._step_names.add(name if isinstance(name, str) else "")
            inner["name"] = stand_in_name(keys[2])
        elif len(keys) == _STEP_KEYS and keys[:2] == _STEPS:
            self._step_names.add("")
            inner[keys[-1]] = {"name": stand_in_name(keys[2]), "uses": UNKNOWN_ENGINE}
        elif isinstance(inner, dict):
            inner.pop(keys[-1], None)


def stand_in_name(index: Key) -> str:
    """Returns the name under which a step is checked whose own cannot be used."""
    return f"{_STAND_IN}{index}"


def is_stand_in(name: str) -> bool:
    """Whether a name is one of :func:`stand_in_name`, which no error shows."""
    return name.startswith(_STAND_IN)


def _field(keys: Keys) -> Keys:
    """The field that is left out for a wrong value: not an element of a list, but the list."""
    if keys[:2] == ("spec", "inputs"):
        return keys[:_INPUT_FIELD_KEYS]
    while keys and isinstance(keys[-1], int) and keys[:-1] != _STEPS:
        keys = keys[:-1]
    return keys


def _is_of_step(keys: Keys, *names: str) -> bool:
    return len(keys) == _STEP_KEYS + 1 and keys[:2] == _STEPS and keys[-1] in names
