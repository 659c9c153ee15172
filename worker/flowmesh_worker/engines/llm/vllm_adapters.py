"""The adapters of a running vLLM engine: checked and loaded before a request uses them.

vLLM has a number of adapters in slots and more in memory, evicts the least recently used, and loads
an evicted one again by its path. A failure to load an adapter during a step would end the engine,
so each is loaded once beforehand.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from flowmesh_worker.engine_api import TreeInput
from flowmesh_worker.engines.errors import bad_input, unplaceable
from flowmesh_worker.engines.llm.adapters import LoraTargets


@dataclass(slots=True)
class VllmAdapters:
    """The adapters of an engine by digest.

    Attributes:
        engine: the ``AsyncLLM``.
        adaptable: the model's layers; None if the engine was started without adapters.
    """

    engine: Any
    adaptable: LoraTargets | None
    _numbers: dict[str, int] = field(default_factory=dict)
    _checks: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)

    async def request_for(self, adapter: TreeInput) -> Any:
        """Returns the ``LoRARequest`` that makes vLLM apply an adapter.

        Its name is the digest, which separates the prefix caches of adapters; its path belongs to
        this action and exists while the action runs.

        Raises:
            AttemptError: bad input; vLLM cannot serve this adapter on this model.
        """
        from vllm.lora.request import LoRARequest  # noqa: PLC0415 - loaded by start

        adaptable = self.adaptable
        if adaptable is None:
            raise unplaceable(
                "this vLLM instance was started without adapters",
                "report this: actions with an adapter have an engine instance of their own",
            )
        number = self._numbers.setdefault(adapter.digest, len(self._numbers) + 1)
        request = LoRARequest(adapter.digest, number, str(adapter.path))
        check = self._checks.get(adapter.digest)
        if check is None or (check.done() and (check.cancelled() or check.exception())):
            check = asyncio.get_running_loop().create_task(self._load(adaptable, adapter, request))
            self._checks[adapter.digest] = check
        await asyncio.shield(check)
        return request

    async def _load(self, adaptable: LoraTargets, adapter: TreeInput, request: Any) -> None:
        await asyncio.to_thread(adaptable.check, adapter.path)
        try:
            await self.engine.add_lora(request)
        except Exception as e:
            # vLLM counts a partly loaded adapter as loaded.
            await self.engine.remove_lora(request.lora_int_id)
            raise bad_input(
                f"vLLM cannot load the adapter: {e}",
                "use an adapter that was trained on this model, or merge it (model.merge)",
            ) from e
