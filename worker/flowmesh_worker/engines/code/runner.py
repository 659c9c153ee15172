"""Runs a user's function in the sandbox.

``python -m flowmesh_worker.engines.code.runner FD PARENT`` is started by :mod:`processes` for each
call. It reads the call from standard input and writes the answer to the descriptor ``FD``; the code
prints to the inherited output.
"""

import linecache
import os
import sys
import traceback
from collections.abc import Mapping
from typing import Any

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_worker.engines.code import sandbox
from flowmesh_worker.engines.code.limits import SandboxRequest, SandboxResult
from flowmesh_worker.ipc.parent_death import die_with_parent

FILE = "code"
_decoder = msgspec.msgpack.Decoder(SandboxRequest)
_LAST_FRAMES = 8
_PLAIN_VALUES = (
    "return strings, finite numbers, booleans, None, and lists or dicts of these, not too deep"
)
_SHAPE = "return a list of dicts, or (rows, metrics)"
_DEFINE = "define it at the top of with.code, or name another in with.function"


class _WrongResultError(Exception):
    """The function did not return rows."""


def main() -> None:
    """Enters the sandbox, runs the call and writes the answer."""
    answer_to, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent)
    task = decode(_decoder, sys.stdin.buffer.read())
    level, lacks = sandbox.enter(task)
    own = os.getpid()
    answer = msgspec.structs.replace(run(task), lacks=lacks, level=level)
    if os.getpid() != own:  # the code forked, and the child returned from the function too
        os._exit(0)
    try:
        data = msgspec.msgpack.encode(answer, enc_hook=_plain)
    except (TypeError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        why = f"{task.function}() returned a value that no column can hold: {error}"
        refused = SandboxResult(error=why, remedy=_PLAIN_VALUES, lacks=lacks, level=level)
        data = msgspec.msgpack.encode(refused)
    sys.stdout.flush()
    with os.fdopen(answer_to, "wb") as out:
        out.write(data)
    os._exit(0)


def run(task: SandboxRequest) -> SandboxResult:
    """Executes the module and calls its function; never raises."""
    linecache.cache[FILE] = (len(task.code), None, task.code.splitlines(keepends=True), FILE)
    module: dict[str, Any] = {"__name__": "user_code", "__builtins__": __builtins__}
    try:
        exec(compile(task.code, FILE, "exec"), module)
        function = module.get(task.function)
        if not callable(function):
            why = f"the code defines no function {task.function}()"
            return SandboxResult(error=why, remedy=_DEFINE)
        rows, metrics = _split(function(**task.inputs, **task.args), task.function)
    except _WrongResultError as error:
        return SandboxResult(error=str(error), remedy=_SHAPE)
    except MemoryError:
        why = f"the code used more than its {task.memory_mib} MiB of memory"
        return SandboxResult(error=why, remedy="raise with.memoryMib, or load less at once")
    except BaseException as error:
        return SandboxResult(error=_short(error), traceback=_own_lines(error))
    return SandboxResult(rows=rows, metrics=metrics)


def _split(value: Any, function: str) -> tuple[list[dict[str, object]], dict[str, object]]:
    metrics: Any = {}
    if isinstance(value, tuple) and len(value) == 2:  # noqa: PLR2004 - rows and metrics
        value, metrics = value
    if not isinstance(metrics, Mapping):
        raise _WrongResultError(
            f"{function}() returned metrics of type {type(metrics).__name__}, not a dict"
        )
    if isinstance(value, Mapping | str | bytes) or not hasattr(value, "__iter__"):
        raise _WrongResultError(f"{function}() returned {type(value).__name__}, not a list of rows")
    rows = []
    for number, row in enumerate(value, 1):
        if not isinstance(row, Mapping):
            raise _WrongResultError(
                f"row {number} that {function}() returned is {type(row).__name__}, not a dict"
            )
        rows.append(dict(row))
    return rows, dict(metrics)


def _plain(value: Any) -> Any:
    """Converts numbers and arrays of libraries to plain numbers and lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} is {type(value).__name__}")


def _short(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _own_lines(error: BaseException) -> str:
    """Returns the traceback without the runner's own frames."""
    if isinstance(error, SyntaxError) and error.filename == FILE:
        return "".join(traceback.format_exception_only(error)).rstrip()
    frames = traceback.extract_tb(error.__traceback__)
    first = next((i for i, f in enumerate(frames) if f.filename == FILE), len(frames))
    lines = traceback.format_list(frames[first:][-_LAST_FRAMES:])
    return "".join([*lines, *traceback.format_exception_only(error)]).rstrip()


if __name__ == "__main__":
    main()
