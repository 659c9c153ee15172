"""``python -m flowmesh_control.evaluators.child KIND PARENT``: evaluates what tenants wrote.

Started by the control plane when it is first needed. It has no token, no key and no store: it reads
requests from its standard input and writes replies to its standard output. Its memory and its
processor time are bounded. Each kind loads its libraries only.
"""

import os
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec

from flowmesh_control.evaluators.confinement import confine
from flowmesh_control.evaluators.framing import framed, receive_frame
from flowmesh_control.evaluators.process import MEMORY_BYTES

Answer = Callable[[bytes], Iterator[bytes]]
"""Returns the frames of the reply to a request."""


def main() -> None:
    """Answers requests until the standard input ends."""
    kind, parent = sys.argv[1], int(sys.argv[2])
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    answer = _ANSWERS[kind](requests)
    confine(parent, MEMORY_BYTES[kind])
    replies.write(framed(msgspec.msgpack.encode({"type": "Ready"})))
    replies.flush()
    while (request := receive_frame(requests)) is not None:
        for reply in answer(request):
            replies.write(framed(reply))
        replies.flush()
    os._exit(0)  # skips the exit handlers of libraries, which would only take time


def _conditions(_: BinaryIO) -> Answer:
    from flowmesh_control.evaluators.condition_child import load  # noqa: PLC0415 - for one kind

    return load()


def _workflows(requests: BinaryIO) -> Answer:
    from flowmesh_control.evaluators.workflow_child import load  # noqa: PLC0415 - for one kind

    return load(receive_frame(requests) or b"")


_ANSWERS: dict[str, Callable[[BinaryIO], Answer]] = {
    "conditions": _conditions,
    "workflows": _workflows,
}

if __name__ == "__main__":
    main()
