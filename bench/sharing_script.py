"""One tenant's own script in ``bench/sharing.py``: loads vLLM and answers prompts.

The variable ``FLOWMESH_BENCH_ENGINE`` has the model and the settings in JSON; the orders on
standard input are those of ``peer``.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from generate import RawVllm

from flowmesh_worker.engine_api import HostSettings

VARIABLE = "FLOWMESH_BENCH_ENGINE"


async def start(given: dict[str, Any]) -> RawVllm:
    """Starts an engine with a worker's library and settings."""
    settings = HostSettings(
        devices=(),
        memory_mib=given["memory_mib"],
        threads=given["threads"],
        signature_params={"dtype": "float32", "batchInvariant": True},
        scratch=Path(given["scratch"]),
    )
    return await RawVllm.start(Path(given["model"]), settings, given["max_tokens"])


async def main() -> None:
    """Serves orders until standard input ends."""
    began = time.monotonic()
    engine = await start(json.loads(os.environ[VARIABLE]))
    print(json.dumps({"seconds": time.monotonic() - began}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        outcome = await engine.together(order["texts"])
        answer = {"texts": outcome.texts, "tokens": outcome.tokens, "seconds": outcome.seconds}
        print(json.dumps(answer), flush=True)
    await engine.stop()


if __name__ == "__main__":
    asyncio.run(main())
