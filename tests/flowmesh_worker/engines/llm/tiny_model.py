"""Creates a language model of two layers with random weights.

Run as a program, since torch and transformers warn while they are imported: ``tiny_model.py DIR``
writes the model, ``tiny_model.py DIR {"NAME": {"r": 4, ...}}`` LoRA adapters for it in DIR/../NAME;
each object is PEFT's configuration, and may have a seed. ``{"NAME": "bfloat16"}`` is the model in
another dtype.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CONTEXT = 512


def write_tokenizer(folder: Path) -> int:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog"] * 4, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|end|>",
        "pad_token": "<|end|>",
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return int(tokenizer.get_vocab_size())


def write_model(folder: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    vocabulary = write_tokenizer(folder)
    torch.manual_seed(11)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
        initializer_range=0.3,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def write_copy(folder: Path, name: str, dtype: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    target = folder.with_name(name)
    shutil.copytree(folder, target)
    AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).save_pretrained(
        target
    )


def write_adapter(folder: Path, name: str, given: dict[str, Any]) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    torch.manual_seed(given.pop("seed", 12))
    if given.get("task_type") == "SEQ_CLS":
        model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1)
    else:
        model = AutoModelForCausalLM.from_pretrained(folder)
    config = LoraConfig(init_lora_weights=False, **given)
    get_peft_model(model, config).save_pretrained(folder.with_name(name))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if sys.argv[2:]:
        for name, given in json.loads(sys.argv[2]).items():
            if isinstance(given, str):
                write_copy(place, name, given)
            else:
                write_adapter(place, name, given)
    else:
        place.mkdir(parents=True)
        write_model(place)
