"""Creates a policy of two layers and a reward model with the same tokens, with random weights.

Run as a program, since torch and transformers warn while they are imported: ``tiny_judge.py DIR``
writes ``DIR/policy`` and ``DIR/judge``.
"""

import json
import sys
from pathlib import Path

PAD = "<|pad|>"
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": 0,
    "initializer_range": 0.2,
}


def write_tokenizer(folder: Path) -> int:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=40,
        special_tokens=["<|end|>", PAD],
        initial_alphabet=[],
        show_progress=False,
    )
    tokenizer.train_from_iterator(["0 1 2 3 4 5 6 7 8 9 + = a user assistant <|>"] * 4, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|end|>",
        # As many models have it: the end token pads, and PPO has to find another.
        "pad_token": "<|end|>",
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return int(tokenizer.get_vocab_size())


def write(folder: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

    for name, kind, extra in (
        ("policy", LlamaForCausalLM, {}),
        ("judge", LlamaForSequenceClassification, {"num_labels": 1}),
    ):
        place = folder / name
        place.mkdir(parents=True)
        torch.manual_seed(11)
        config = LlamaConfig(vocab_size=write_tokenizer(place), pad_token_id=0, **SIZES, **extra)
        kind(config).save_pretrained(place)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
