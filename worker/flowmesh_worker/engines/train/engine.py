"""The base class of the training engines: loads once, runs one action at a time.

An engine defines how rows become examples (:meth:`TrainEngine.read`) and which trainer learns from
them (:meth:`TrainEngine.build`). Importing this module does not import torch.
"""

import asyncio
import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import Any, ClassVar

from flowmesh_core.protocol.messages import EngineVariant
from flowmesh_worker.engine_api import HostSettings, Progress, Result, TreeInput, Work
from flowmesh_worker.engines.errors import bad_input, out_of_memory, unplaceable
from flowmesh_worker.engines.preload import TRL, HostPreload
from flowmesh_worker.engines.train.cancelled import TrainingCancelledError
from flowmesh_worker.engines.train.environment import prepare_process
from flowmesh_worker.engines.train.examples import Examples
from flowmesh_worker.engines.train.memory import TrainingPlan, need, what_fits
from flowmesh_worker.engines.train.model_config import ModelConfig, read_trainee

_LIBRARIES = ("trl", "peft", "transformers", "torch")
_DTYPES = ("auto", "float32", "bfloat16", "float16")
_LIBRARIES_MIB = 900
"""Host memory of Python with torch, transformers, TRL and pyarrow."""
_CONTEXT_MIB = 700
"""Device memory of CUDA's context and libraries."""


class TrainEngine(ABC):
    """An engine that trains; see :class:`flowmesh_worker.engine_api.Engine`."""

    name: ClassVar[str]
    """The engine's name."""
    reward: ClassVar[bool] = False
    """Whether it trains a model with a score head."""
    sequences: ClassVar[int] = 1
    """Sequences that one row adds to a batch."""
    references: ClassVar[int] = 0
    """Reference copies of the model that full fine-tuning needs."""

    def __init__(self) -> None:
        self.capacity = 1
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="train")
        self._settings: HostSettings | None = None
        self._trainee: ModelConfig | None = None
        self._base: Any = None

    @classmethod
    def variants(cls, device_class: str) -> list[EngineVariant]:
        """Returns the variants that this installation serves on devices of a class."""
        del device_class
        if any(importlib.util.find_spec(library) is None for library in _LIBRARIES):
            return []
        return [EngineVariant(cls.name, "", _DTYPES, (True, False))]

    @staticmethod
    def prepares(params: Mapping[str, Any], *, on_devices: bool) -> HostPreload:
        """Returns what a standby host of this engine imports."""
        del params, on_devices
        return TRL

    @abstractmethod
    def read(self, work: Work, tokenizer: Any, limit: int) -> Examples:
        """Turns the rows of an action into examples.

        Args:
            work: the action.
            tokenizer: the model's.
            limit: the maximum tokens of one sequence.

        Raises:
            AttemptError: bad input; names the row.
        """

    @abstractmethod
    def build(self, session: Any) -> Any:
        """Creates the trainer of an action from its ``TrainingSession``."""

    def full_logits(self, params: Mapping[str, Any]) -> bool:
        """Whether the trainer computes the logits of a whole batch at once."""
        del params
        return not self.reward

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Reads the model's configuration, and loads its weights if adapters will share them.

        Raises:
            AttemptError: out of memory, unplaceable or bad input, with a remedy.
        """
        prepare_process(settings)
        self._settings = settings
        self._trainee = await asyncio.to_thread(read_trainee, components["model"].path)
        _refuse_8bit(settings)
        self._refuse_too_large(self._trainee, settings)
        loop = asyncio.get_running_loop()
        self._base = await loop.run_in_executor(self._thread, self._load)

    async def run(self, work: Work, progress: Progress) -> Result:
        """Trains on the rows of one action; a cancellation stops it at the next step."""
        loop = asyncio.get_running_loop()
        stop = Event()

        def report(done: float, total: float) -> None:
            loop.call_soon_threadsafe(progress, done, total, "steps")

        running = loop.run_in_executor(self._thread, self._train, work, report, stop)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            stop.set()
            with suppress(Exception):
                await running
            raise
        except TrainingCancelledError:
            raise asyncio.CancelledError from None

    async def close(self) -> None:
        """Frees the model."""
        self._thread.shutdown(wait=True)
        self._base = None

    def _load(self) -> Any:
        from flowmesh_worker.engines.train.base_model import (  # noqa: PLC0415 - brings torch
            BaseModel,
        )

        assert self._settings is not None
        assert self._trainee is not None
        shared = self._settings.signature_params
        base = BaseModel(
            self._trainee,
            self._settings,
            reward=self.reward,
            in_8bit=bool(shared.get("load_in_8bit")),
        )
        if shared.get("use_peft"):
            base.load_shared()
        return base

    def _train(self, work: Work, report: Callable[[float, float], None], stop: Event) -> Result:
        from flowmesh_worker.engines.train.session import (  # noqa: PLC0415 - brings torch
            open_session,
            train,
        )

        tokenizer = self._base.tokenizer()
        examples = self.read(work, tokenizer, self._base.limit(work.params))
        self._refuse_too_much(work, examples)
        session = open_session(
            work,
            self._base,
            examples,
            tokenizer,
            engine=self.name,
            reward=self.reward,
            told=report,
            stop=stop,
        )
        test = f", {len(examples.test)} held out" if examples.test else ""
        sys.stdout.write(f"{len(examples.train)} rows to learn from{test}\n")
        return train(session, self.build)

    def plan(self, work: Work, examples: Examples) -> TrainingPlan:
        """Returns what an action trains and loads, to compute the memory that it needs.

        Raises:
            AttemptError: bad input; the modules to adapt are not known.
        """
        from flowmesh_worker.engines.train.lora import (  # noqa: PLC0415 - brings torch
            target_modules,
        )

        assert self._trainee is not None
        assert self._settings is not None
        params, trainee = work.params, self._trainee
        targets: tuple[str, ...] = ()
        if params["use_peft"]:
            targets = target_modules(params, trainee.architecture)
        dtype = str(self._settings.signature_params.get("dtype", "auto"))
        return TrainingPlan(
            size=trainee.size(dtype, int(params["lora_r"]), targets),
            use_peft=bool(params["use_peft"]),
            load_in_8bit=bool(params["load_in_8bit"]),
            optim=str(params["optim"]),
            batch=self.sequences
            * min(int(params["per_device_train_batch_size"]), len(examples.train)),
            length=self._base.limit(params) if params.get("packing") else examples.longest,
            checkpointing=bool(params["gradient_checkpointing"]),
            full_logits=self.full_logits(params),
            references=0 if params["use_peft"] else self.references,
            overhead_mib=self._overhead_mib(),
        )

    def _refuse_too_much(self, work: Work, examples: Examples) -> None:
        assert self._settings is not None
        plan = self.plan(work, examples)
        needed, available = need(plan), self._settings.memory_mib
        if needed.total > available:
            fits = what_fits(plan, available, on_device=bool(self._settings.devices))
            raise out_of_memory(
                f"this training needs about {needed}; the host may use {available} MiB",
                "set one of " + ", ".join(fits),
            )

    def _refuse_too_large(self, trainee: ModelConfig, settings: HostSettings) -> None:
        """Refuses weights that alone do not fit, before they are loaded."""
        size = trainee.size(str(settings.signature_params.get("dtype", "auto")), 0, ("",))
        shrunk = size.matrices if settings.signature_params.get("load_in_8bit") else 0
        weights = (size.parameters - shrunk) * size.weight_bytes + shrunk
        wanted = weights // (1024 * 1024) + self._overhead_mib()
        if wanted > settings.memory_mib:
            raise out_of_memory(
                f"the weights and their libraries need {wanted} MiB;"
                f" the host may use {settings.memory_mib} MiB",
                f"set resources.memory above {wanted}Mi, or use a smaller model or dtype",
            )

    def _overhead_mib(self) -> int:
        assert self._settings is not None
        return _CONTEXT_MIB if self._settings.devices else _LIBRARIES_MIB


def _refuse_8bit(settings: HostSettings) -> None:
    if not settings.signature_params.get("load_in_8bit"):
        return
    if not settings.signature_params.get("use_peft"):
        raise bad_input(
            "with.load_in_8bit freezes the model: without an adapter nothing would be trained",
            "set use_peft: true, or remove load_in_8bit",
        )
    if not settings.devices:
        raise unplaceable(
            "with.load_in_8bit needs a GPU: this worker has none",
            "remove load_in_8bit, or run on a pool with GPUs",
        )
    if importlib.util.find_spec("bitsandbytes") is None:
        raise unplaceable(
            "with.load_in_8bit needs bitsandbytes, which is not installed on this worker",
            "install the extra worker-gpu, or remove load_in_8bit",
        )
