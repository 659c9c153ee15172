"""vLLM's own server, with the flags that our engine hosts give the same engine on a CPU.

``vllm serve`` ends at once with the CPU wheel, as it looks for a distribution named ``vllm``; the
module that it would run, ``vllm.entrypoints.openai.api_server``, works.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from serving_load import Contestant
from serving_stack import CHAT, MEMORY_MIB, MODEL, model_settings

from flowmesh_worker.engines.environment import import_environment
from flowmesh_worker.engines.llm.vllm_sizes import sizes_for
from flowmesh_worker.engines.models.model_facts import read_facts
from flowmesh_worker.instances.host_process import host_environment

_POLL_S = 0.2
_START_WITHIN_S = 600.0
_TAIL_CHARS = 2000


def command(model: Path, port: int, memory_mib: int) -> list[str]:
    """Returns the command that serves a model on a port."""
    facts, settings = read_facts(model), model_settings(model.parent, memory_mib)
    sizes = sizes_for(facts, "float32", settings)
    return [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
        *("--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "float32", "--max-model-len", str(facts.context_length)),
        *("--max-num-seqs", str(sizes.sequences)),
        *("--max-num-batched-tokens", str(sizes.batched_tokens)),
        *("--kv-cache-memory-bytes", str(sizes.kv_cache_bytes)),
        *("--scheduling-policy", "priority", "--enable-prefix-caching", "--enforce-eager"),
        *("--no-enable-chunked-prefill", "--load-format", "safetensors", "--disable-log-stats"),
        *("--structured-outputs-config", '{"backend":"xgrammar","disable_any_whitespace":true}'),
        *("--uvicorn-log-level", "error", "--disable-uvicorn-access-log"),
    ]


@contextlib.asynccontextmanager
async def vllm_server(
    model: Path,
    body: str,
    log: Path,
    *,
    memory_mib: int = MEMORY_MIB,
    threads: int = os.cpu_count() or 1,
) -> AsyncIterator[Contestant]:
    """Yields vLLM's server once it answers.

    Args:
        model: its directory.
        body: of the requests.
        log: gets what the server prints.
        memory_mib: as of an engine host, which chooses vLLM's sizes by it.
        threads: for the model.

    Raises:
        RuntimeError: it has ended, or did not answer in time.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **host_environment(os.environ, threads),
        **import_environment(threads, on_devices=False, batch_invariant=True),
    }
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command(model, port, memory_mib),
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    try:
        await _until_open(port, process, log)
        url = f"http://127.0.0.1:{port}{CHAT}"
        yield Contestant("vLLM's api_server", url, body, {"engine": process.pid})
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        await process.wait()


async def _until_open(port: int, process: asyncio.subprocess.Process, log: Path) -> None:
    async with asyncio.timeout(_START_WITHIN_S):
        while process.returncode is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(_POLL_S)
            else:
                writer.close()
                return
    raise RuntimeError(f"vLLM's server has ended: {_tail(log)}")


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-_TAIL_CHARS:]
