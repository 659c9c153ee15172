"""Ray's side of ``bench/sharing.py``: eight tenants' tasks and one actor with vLLM for all of them.

Ray has its own environment, but vLLM is the project's, so that every system runs the same one: the
variable ``FLOWMESH_BENCH_SITE`` names the folders that are searched after Ray's own.
"""

import asyncio
import json
import os
import site
import sys
import time
from typing import Any

import ray

SITES = "FLOWMESH_BENCH_SITE"
VARIABLE = "FLOWMESH_BENCH_ENGINE"


@ray.remote(num_cpus=0, max_concurrency=64)
class Engine:
    """One engine that all tenants call."""

    async def load(self, given: dict[str, Any]) -> None:
        """Starts vLLM."""
        for folder in os.environ[SITES].split(os.pathsep):
            site.addsitedir(folder)
        import sharing_script  # noqa: PLC0415 - found once the folders are known

        self._engine = await sharing_script.start(given)

    async def complete(self, texts: list[str], salt: str) -> tuple[dict[str, str], int]:
        """Completes all prompts of a tenant at once; tenants share the prefix cache."""
        outcome = await self._engine.together(texts, salt)
        return dict(outcome.texts), outcome.tokens


@ray.remote(num_cpus=0)
def tenant(engine: Any, texts: list[str], salt: str) -> tuple[dict[str, str], int]:
    """A tenant's script: sends its prompts and waits."""
    answer: tuple[dict[str, str], int] = ray.get(engine.complete.remote(texts, salt))
    return answer


async def main() -> None:
    """Serves orders until standard input ends."""
    began = time.monotonic()
    ray.init(
        "local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False
    )
    engine = Engine.remote()
    await engine.load.remote(json.loads(os.environ[VARIABLE]))
    seconds = time.monotonic() - began
    print(json.dumps({"version": ray.__version__, "seconds": seconds}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        began = time.monotonic()
        asked = [tenant.remote(engine, texts, order["salt"]) for texts in order["tenants"]]
        answers = await asyncio.gather(*asked)
        seconds = time.monotonic() - began
        texts = {prompt: text for found, _ in answers for prompt, text in found.items()}
        tokens = sum(n for _, n in answers)
        print(json.dumps({"texts": texts, "tokens": tokens, "seconds": seconds}), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
