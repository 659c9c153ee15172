"""The engine ``model.merge``: merges a LoRA adapter into the weights of its model.

For adapters that cannot be served as they are (DoRA, additional whole modules, large ranks), and
for models that are used outside the fabric. The same inputs give the same bytes.
"""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flowmesh_store.model_files import is_safe
from flowmesh_worker.engine_api import HostSettings, Progress, Result, Tree, TreeInput, Usage, Work
from flowmesh_worker.engines.engine_base import EngineBase
from flowmesh_worker.engines.environment import apply_environment, library_environment
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.llm.adapters import ADAPTER_WEIGHTS
from flowmesh_worker.engines.models.model_facts import ModelFacts, read_facts
from flowmesh_worker.engines.models.safetensors_header import head_labels

_MIB = 1024 * 1024
_WRITTEN = ("config.json", "model.safetensors.index.json")
"""Files of which the merged model writes its own version."""


class ModelMerge(EngineBase):
    """The engine ``model.merge``; see :class:`flowmesh_worker.engine_api.Engine`."""

    capacity = 1

    def __init__(self) -> None:
        self._facts: ModelFacts | None = None

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Reads the model's configuration; each merge loads the weights again."""
        apply_environment(library_environment(settings, batch_invariant=True))
        self._facts = await asyncio.to_thread(read_facts, components["model"].path)

    async def run(self, work: Work, progress: Progress) -> Result:
        """Merges one adapter."""
        facts, adapter = self._facts, work.inputs["adapter"]
        if facts is None or not isinstance(adapter, TreeInput):
            raise RuntimeError("model.merge was given work before it was loaded")
        target = work.out_dir / "model"
        await asyncio.to_thread(_merge, facts, adapter.path, target)
        size = sum(f.stat().st_size for f in target.iterdir())
        progress(size / _MIB, size / _MIB, "MiB")
        return Result({"model": Tree(target)}, Usage(units=size))


def _merge(facts: ModelFacts, adapter: Path, target: Path) -> None:
    from peft import PeftModel  # noqa: PLC0415 - heavy

    model = _base(facts, adapter)
    try:
        wrapped = PeftModel.from_pretrained(model, str(adapter))
        merged = wrapped.merge_and_unload(safe_merge=True)
    except (ValueError, OSError, KeyError, RuntimeError, TypeError) as e:
        raise bad_input(
            f"the adapter cannot be merged into the model: {e}",
            "use a LoRA adapter that was trained on this model",
        ) from e
    merged.save_pretrained(target)
    for file in sorted(facts.path.iterdir()):
        weights = file.suffix == ".safetensors" or file.name in _WRITTEN
        if file.is_file() and is_safe(file.name) and not weights:
            shutil.copyfile(file, target / file.name)


def _base(facts: ModelFacts, adapter: Path) -> Any:
    """Loads the model in its own dtype, with the head that the adapter was trained with."""
    import torch  # noqa: PLC0415 - heavy
    from transformers import (  # noqa: PLC0415 - heavy
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
    )

    torch.use_deterministic_algorithms(True, warn_only=True)
    labels = _labels(adapter)
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    loader: Any = AutoModelForCausalLM
    if labels or facts.scores:
        loader = AutoModelForSequenceClassification
        if labels:
            options["num_labels"] = labels
    try:
        return loader.from_pretrained(
            str(facts.path), dtype=getattr(torch, facts.dtype), use_safetensors=True, **options
        ).eval()
    except (ValueError, OSError, KeyError) as e:
        raise bad_input(
            f"transformers cannot load the model: {e}", "check its config and its files"
        ) from e


def _labels(adapter: Path) -> int:
    """Returns the outputs per sequence of the adapter's own head; 0 without a head."""
    try:
        if not (adapter / ADAPTER_WEIGHTS).exists():
            raise bad_input(
                f"the adapter has no {ADAPTER_WEIGHTS}",
                "save it with PEFT as safetensors (pickled .bin files are refused)",
            )
        return head_labels(adapter, ADAPTER_WEIGHTS)
    except (OSError, ValueError) as e:
        raise bad_input(f"the adapter cannot be read: {e}", "save it with PEFT again") from e
