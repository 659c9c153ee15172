"""Loads the code of Python components and runs batches of their calls.

Used in the resident sandbox, and for trusted code in the engine host itself. Results stay here
under their keys, so that the next component gets the same object.
"""

import linecache
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.protocol.serving import PACKED_ARRAYS, StoredInput
from flowmesh_core.stages.component_methods import COMPONENT_METHODS, COMPUTE, STEP, methods_problem
from flowmesh_core.stages.values import part_of
from flowmesh_worker.engines.code.component_frames import (
    BatchCall,
    CallResult,
    LoadedCode,
    ResultKind,
    StepMember,
)
from flowmesh_worker.engines.code.iterating_code import IteratingCode, StepResults
from flowmesh_worker.engines.code.packed_arrays import NotPackedError, unpack
from flowmesh_worker.engines.code.result_values import (
    ERROR_CHARS_MAX,
    ValueFiles,
    WrongValueError,
    encode_json,
    encode_value,
    error_line,
)
from flowmesh_worker.ipc.passed_values import NO_VALUES, StageBytes
from flowmesh_worker.ipc.read_mappings import ReadMappings
from flowmesh_worker.ipc.shared_value import SharedValue

_FRAMES_MAX = 8
_inputs = msgspec.json.Decoder(dict)
_json = msgspec.json.Decoder()
Compute = Callable[[list[Any]], Any]


class LostValueError(Exception):
    """A value that a call names is not here any more."""


class WrongResultsError(Exception):
    """A function returned something else than one result a call."""


class ComponentCode:
    """The components of one host."""

    def __init__(self, components: Sequence[LoadedCode], files: ValueFiles) -> None:
        """Runs the modules.

        Args:
            components: the code.
            files: for results that pass to other hosts.

        Raises:
            Exception: whatever the code raises; WrongResultsError where it has no such function.
        """
        self._functions: dict[str, Compute] = {}
        self._iterating: dict[str, IteratingCode] = {}
        for one in components:
            loaded = _loaded(one)
            if isinstance(loaded, IteratingCode):
                self._iterating[one.name] = loaded
            else:
                self._functions[one.name] = loaded
        self._files = {_file(one.name) for one in components}
        self._stored: dict[str, Any] = {}
        self._value_files = files
        self._mappings = ReadMappings()
        self._read: list[Any] = []

    def run(
        self,
        component: str,
        calls: Sequence[BatchCall],
        passed: Sequence[Mapping[str, StageBytes]] = (),
    ) -> list[CallResult]:
        """Runs a batch; where it raises, its members run one by one.

        Args:
            component: whose function gets the batch.
            calls: its members.
            passed: of each member, inputs that components of other hosts have made.
        """
        inputs: list[Any] = []
        results: dict[int, CallResult] = {}
        for number, call in enumerate(calls):
            found = self.read_inputs(call, passed[number] if passed else NO_VALUES)
            if isinstance(found, CallResult):
                results[number] = found
            else:
                inputs.append(found)
        if any(_has_pages_of_its_own(value) for one in passed for value in one.values()):
            self._read.append(inputs)
        left = [number for number in range(len(calls)) if number not in results]
        for number, result in zip(left, self._computed(component, inputs), strict=True):
            if isinstance(result, CallResult):
                results[number] = result
            else:
                results[number] = self.write_result(calls[number], result[0])
        return [results[number] for number in range(len(calls))]

    @property
    def iterating(self) -> tuple[str, ...]:
        """The names of the components that iterate."""
        return tuple(self._iterating)

    def step(
        self,
        component: str,
        members: Sequence[StepMember],
        passed: Sequence[Mapping[str, StageBytes]] = (),
    ) -> StepResults:
        """Runs one step of calls of a component that iterates; arguments as of :meth:`run`."""
        return self._iterating[component].step(members, passed, self)

    def forget(self, keys: Sequence[str]) -> None:
        """Drops results, and states of calls."""
        for key in keys:
            self._stored.pop(key, None)
        for iterating in self._iterating.values():
            iterating.forget(keys)

    @property
    def may_prepare(self) -> bool:
        """Whether :meth:`prepare` has something to do."""
        return self._value_files.is_used or bool(self._read) or self._mappings.has_new

    def prepare(self) -> None:
        """Frees what the last batches have read, and prepares memory for the next results.

        Called once results were sent: to give 16 MiB back takes milliseconds.
        """
        self._read.clear()
        self._mappings.drop_ended()
        self._value_files.prepare()

    def _computed(self, component: str, inputs: list[Any]) -> list[CallResult | tuple[Any]]:
        if not inputs:
            return []
        try:
            return [(result,) for result in self._compute(component, inputs)]
        except Exception as error:
            if len(inputs) > 1:
                return [one for alone in inputs for one in self._computed(component, [alone])]
            return [self.raised(error)]

    def _compute(self, component: str, inputs: list[Any]) -> list[Any]:
        results = self._functions[component](inputs)
        if not isinstance(results, list | tuple) or len(results) != len(inputs):
            found = f"{len(results)}" if isinstance(results, list | tuple) else "no list"
            raise WrongResultsError(
                f"{component} returned {found} for {len(inputs)} calls: expected a list with one"
                " result for each, in order"
            )
        return list(results)

    # -- as CallValues ---------------------------------------------------------------------------

    def read_inputs(
        self, call: BatchCall, passed: Mapping[str, StageBytes]
    ) -> dict[str, Any] | CallResult:
        """See ``CallValues``."""
        try:
            return self._inputs(call, passed)
        except LostValueError:
            return CallResult(ResultKind.LOST)
        except (FlowMeshError, NotPackedError, OSError, msgspec.DecodeError) as error:
            return CallResult(ResultKind.BAD_INPUT, error=error_line(error))

    def raised(self, error: Exception) -> CallResult:
        """See ``CallValues``."""
        return CallResult(ResultKind.RAISED, error=self._error_text(error))

    def _inputs(self, call: BatchCall, passed: Mapping[str, StageBytes]) -> dict[str, Any]:
        found: dict[str, Any] = decode(_inputs, call.body)
        for name, value in passed.items():
            path = call.passed[name].path
            found[name] = part_of(self._opened(value), path, ".".join(("the value", *path)))
        for name, stored in call.stored.items():
            found[name] = self._value(stored)
        return found

    def _opened(self, value: StageBytes) -> Any:
        """Returns a value that a component of another host has made."""
        view = self._mappings.view(value) if isinstance(value, SharedValue) else memoryview(value)
        return unpack(view) if view[:1] == PACKED_ARRAYS else decode(_json, view)

    def _value(self, stored: StoredInput) -> Any:
        if stored.key not in self._stored:
            raise LostValueError
        return part_of(self._stored[stored.key], stored.path, ".".join(("the value", *stored.path)))

    def write_result(self, call: BatchCall, value: Any) -> CallResult:
        """See ``CallValues``; the result is kept where the call says so."""
        body = b""
        passed: StageBytes = b""
        try:
            if call.wants_body:
                body = encode_json(value)
            elif call.wants_value:
                passed = encode_value(value, self._value_files)
        except WrongValueError as error:
            return CallResult(ResultKind.RAISED, error=str(error))
        if call.store_as:
            self._stored[call.store_as] = value
        if isinstance(passed, bytes) and not passed.startswith(PACKED_ARRAYS):
            return CallResult(ResultKind.OK, body or passed)
        return CallResult(ResultKind.OK, body, value=passed)

    def _error_text(self, error: Exception) -> str:
        """Returns the error with the lines of the user's code."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename in self._files]
        lines = traceback.format_list(own[-_FRAMES_MAX:])
        return "".join([*lines, error_line(error)])[-ERROR_CHARS_MAX:]


def _loaded(one: LoadedCode) -> Compute | IteratingCode:
    file = _file(one.name)
    linecache.cache[file] = (len(one.code), None, one.code.splitlines(keepends=True), file)
    module: dict[str, Any] = {"__name__": f"component_{one.name}", "__builtins__": __builtins__}
    exec(compile(one.code, file, "exec"), module)
    found: Any = module.get(one.function)
    if isinstance(found, type):
        made = found()
        has = {name for name in COMPONENT_METHODS if callable(getattr(made, name, None))}
        if problem := methods_problem(one.function, has):
            raise WrongResultsError(f"the code of {one.name}: {problem}")
        if STEP in has:
            return IteratingCode(one.name, made)
        found = getattr(made, COMPUTE)
    if not callable(found):
        raise WrongResultsError(
            f"the code of {one.name} has no function {one.function}(): expected one that gets a"
            " list of calls, or a class with a method compute or with start, step and finish"
        )
    compute: Compute = found
    return compute


def _file(name: str) -> str:
    return f"<{name}>"


def _has_pages_of_its_own(value: StageBytes) -> bool:
    """Returns whether a value takes time to unmap, and perhaps to free."""
    return isinstance(value, SharedValue) and not value.is_reusable


def loaded_code(components: Sequence[Mapping[str, Any]]) -> tuple[LoadedCode, ...]:
    """Returns the components in the parameters of a host."""
    return tuple(
        LoadedCode(str(c["name"]), str(c["code"]), str(c["function"]), int(c["batchMax"]))
        for c in components
    )
