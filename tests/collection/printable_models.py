"""Writes two models that say printable ASCII alone: ``printable_models.py TINY DIR``.

A small model with random weights draws single bytes, of which an engine that decodes as it draws
cannot show the last ones. Here such tokens have no weight. ``DIR/base`` is the small model without
them, ``DIR/second`` one that draws other tokens. Run as a program, since torch and transformers
warn while they are imported.
"""

import shutil
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def write(tiny: Path, folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    model = AutoModelForCausalLM.from_pretrained(tiny)
    weight = model.lm_head.weight
    printable = [
        token
        for token in range(len(weight))
        if (text := tokenizer.decode([token])).isascii() and text.isprintable() and text
    ]
    kept = weight[printable].clone()
    with torch.no_grad():
        for name, shift in (("base", 0), ("second", 1)):
            weight.zero_()
            weight[printable] = kept.roll(shift, 0)
            shutil.copytree(tiny, folder / name)
            model.save_pretrained(folder / name)


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
