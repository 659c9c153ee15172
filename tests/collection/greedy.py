"""Completes texts greedily and embeds them, with transformers alone.

Run as a program, since torch and transformers warn while they are imported: each line of standard
input is a request, an object with `model` (a folder) and `embed`, or `prompt`, `tokens` (the most)
and `options` of `generate`; each line of standard output its answer.
"""

import functools
import json
import sys
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


@functools.cache
def loaded(folder: str) -> tuple[Any, Any]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return AutoTokenizer.from_pretrained(folder), model.eval()


def answer(request: dict[str, Any]) -> Any:
    tokenizer, model = loaded(request["model"])
    text = request.get("embed", request.get("prompt"))
    ids = torch.tensor([tokenizer.encode(text)])
    with torch.inference_mode():
        if "embed" in request:
            hidden = model.base_model(ids).last_hidden_state[0]
            vector = hidden[0] if request["pooling"] == "cls" else hidden.mean(0)
            return torch.nn.functional.normalize(vector, dim=0).tolist()
        whole = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=request["tokens"],
            do_sample=False,
            pad_token_id=tokenizer.eos_token_id,
            **request.get("options", {}),
        )
    new = whole[0, ids.shape[1] :].tolist()
    ended = new[-1] == tokenizer.eos_token_id
    return [tokenizer.decode(new, skip_special_tokens=True), "stop" if ended else "length"]


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)  # noqa: T201
