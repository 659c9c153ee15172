"""The process that compiles grammars of tenants' schemas before the shared engine does.

Some schemas of a few kilobytes take minutes and gigabytes to compile. vLLM would compile them in
the engine core, beside the requests of others. Here each is compiled first in a process of its own,
with a limit of processor time and memory, and thrown away.

The process is forked from the host when it has imported vLLM, so that it shares these 500 MiB, and
forks a child for each grammar. It holds nothing but its end of a socket pair.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec

from flowmesh_core.decoding import decode

COMPILE_S = 1
"""Processor time of one grammar."""
WITHIN_S = 5.0
"""Wall time of one grammar, on a machine that is busy."""
MEMORY_BYTES = 256 << 20
"""Memory of one grammar, besides what the process has already."""
COMPILED, REFUSED, TOO_LONG, TOO_LARGE = "compiled", "refused", "too-long", "too-large"
_MODULES = ("xgrammar", "transformers", "vllm.v1.structured_output.backend_xgrammar")
_PR_SET_PDEATHSIG = 1
_HEADER_BYTES = 4
_MESSAGE_BYTES = 2000
_NO_MEMORY = 3
_FAILED = 4
_SLOW_SIGNALS = (signal.SIGXCPU, signal.SIGALRM)


class GrammarRequest(msgspec.Struct, frozen=True, array_like=True):
    """A grammar to compile: vLLM's name of its kind, and its text."""

    option: str
    spec: str


_requests = msgspec.msgpack.Decoder(GrammarRequest)


class GrammarReply(msgspec.Struct, frozen=True, array_like=True):
    """``COMPILED``, or why it is not; ``message`` is the compiler's where it is ``REFUSED``."""

    outcome: str
    message: str = ""


class GrammarProcess:
    """The forked process, seen from the host.

    Attributes:
        socket: the host's end of the socket pair.
    """

    def __init__(self, pid: int, end: socket.socket) -> None:
        self.socket = end
        self._pid = pid

    @classmethod
    def fork(cls, model: Path) -> "GrammarProcess":
        """Forks the process; the calling thread must live as long as it is needed.

        Args:
            model: the model's folder, with its tokenizer.
        """
        for name in _MODULES:
            importlib.import_module(name)
        ours, theirs = socket.socketpair()
        gc.freeze()  # else the collector would write to the shared pages
        pid = os.fork()
        if pid:
            gc.unfreeze()
            theirs.close()
            return cls(pid, ours)
        code = 1
        try:
            _serve(theirs, model)
            code = 0
        finally:
            os._exit(code)

    def close(self) -> None:
        """Ends the process."""
        self.socket.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def frame(message: GrammarRequest | GrammarReply) -> bytes:
    """Returns a message with its length before it."""
    data = msgspec.msgpack.encode(message)
    return len(data).to_bytes(_HEADER_BYTES, "big") + data


def frame_size(header: bytes) -> int:
    """Returns the length of the message after this header."""
    return int.from_bytes(header, "big")


def _serve(end: socket.socket, model: Path) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(end.detach(), 3)
    os.closerange(4, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    channel = socket.socket(fileno=3)
    compiler = None
    with channel.makefile("rwb") as file:
        while header := file.read(_HEADER_BYTES):
            data = file.read(frame_size(header))
            if compiler is None:
                compiler = _compiler(model)
            request = decode(_requests, data)
            file.write(frame(_compiled(compiler, request)))
            file.flush()


def _compiler(model: Path) -> Any:
    """Returns vLLM's compiler for the model's tokens, on one thread and without a cache."""
    import xgrammar  # noqa: PLC0415 - heavy
    from transformers import AutoConfig, AutoTokenizer  # noqa: PLC0415 - as above
    from vllm.v1.structured_output.backend_xgrammar import (  # noqa: PLC0415 - as above
        XgrammarBackend,
    )

    config = AutoConfig.from_pretrained(model).get_text_config()
    backend = object.__new__(XgrammarBackend)  # its start needs an engine's whole configuration
    backend.vocab_size = config.vocab_size
    tokens = xgrammar.TokenizerInfo.from_huggingface(
        AutoTokenizer.from_pretrained(model), vocab_size=config.vocab_size
    )
    backend.compiler = xgrammar.GrammarCompiler(tokens, max_threads=1, cache_enabled=False)
    backend.disable_any_whitespace = True
    backend.num_speculative_tokens = 0
    return backend


def _compiled(compiler: Any, request: GrammarRequest) -> GrammarReply:
    """Compiles a grammar in a child."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read_end)
        _compile(compiler, request, write_end)
    os.close(write_end)
    with open(read_end, "rb") as file:
        message = file.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return GrammarReply(TOO_LONG if os.WTERMSIG(status) in _SLOW_SIGNALS else TOO_LARGE)
    match os.WEXITSTATUS(status):
        case 0:
            return GrammarReply(COMPILED)
        case code if code == _NO_MEMORY:
            return GrammarReply(TOO_LARGE)
        case _:
            return GrammarReply(REFUSED, message.decode(errors="replace"))


def _compile(compiler: Any, request: GrammarRequest, write_end: int) -> None:
    """Compiles a grammar in this process, and exits."""
    from vllm.v1.structured_output.backend_types import (  # noqa: PLC0415 - loaded before
        StructuredOutputOptions,
    )

    code = _FAILED
    try:
        _limit_this_process()
        compiler.compile_grammar(StructuredOutputOptions[request.option], request.spec)
        code = 0
    except MemoryError:
        code = _NO_MEMORY
    except Exception as e:
        os.write(write_end, str(e).encode()[:_MESSAGE_BYTES])
    finally:
        os._exit(code)


def _limit_this_process() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (COMPILE_S, COMPILE_S + 1))
    status = Path("/proc/self/status").read_text()
    used = int(status.partition("VmData:")[2].split(maxsplit=1)[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY_BYTES, used + MEMORY_BYTES))
    signal.setitimer(signal.ITIMER_REAL, WITHIN_S)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    os.dup2(sys.stderr.fileno(), 2)  # a library that aborts would print there
