"""Names that other tools use: answered with ours, or with why there is none.

Called where a step has a parameter or an input that its contract does not know, or a tool of an
agent that there is not. vLLM's names are those of its release 0.27.1.
"""

import re
from collections.abc import Collection
from typing import Any

_OURS = {
    "n": "samples",
    "best_of": "samples",
    "num_return_sequences": "samples",
    "max_new_tokens": "maxTokens",
    "max_completion_tokens": "maxTokens",
    "min_new_tokens": "minTokens",
    "include_stop_str_in_output": "includeStop",
    "chat_template_kwargs": "chatTemplateArgs",
    "no_repeat_ngram_size": "noRepeatNgram",
    "guided_json": "jsonSchema",
    "response_format": "jsonSchema",
    "structured_outputs": "jsonSchema",
    "max_model_len": "engine.maxModelLen",
    "kv_cache_dtype": "engine.kvCacheDtype",
    "quantization": "engine.quantization",
    "reasoning_parser": "reasoning",
}
_LOGPROBS = "llm.score gives log-probabilities of given texts, llm.openai those of completions"
_NO_GRAMMAR = "grammars are not offered; use jsonSchema"
_BY_WORKER = "is not set by a step, since tenants share engines: the worker chooses it"
_REFUSED = {
    "trust_remote_code": "trust_remote_code is always off; convert the model",
    "logit_bias": "logit_bias is not offered; use badWords, or penalties",
    "grammar": _NO_GRAMMAR,
    "guided_grammar": _NO_GRAMMAR,
    "rope_scaling": "set rope scaling in the model's config.json",
    "rope_theta": "set rope scaling in the model's config.json",
    "hf_overrides": "hf_overrides is not offered; change the model's config.json",
    "do_sample": "do_sample is not a parameter; write temperature: 0 for greedy decoding",
    "logprobs": _LOGPROBS,
    "prompt_logprobs": _LOGPROBS,
    **dict.fromkeys(
        ("regex", "guided_regex"), "write it in jsonSchema, as {type: string, pattern: ...}"
    ),
    **dict.fromkeys(("choice", "guided_choice"), "write it in jsonSchema, as {enum: [...]}"),
    **{
        name: f"{name} {_BY_WORKER}"
        for name in (
            "gpu_memory_utilization",
            "max_num_seqs",
            "max_num_batched_tokens",
            "enforce_eager",
            "enable_chunked_prefill",
            "enable_prefix_caching",
            "swap_space",
            "block_size",
        )
    },
}

_ONE_DEVICE = "training runs on one device; leave it out"
_REFUSED_IN_TRAINING = {
    **dict.fromkeys(("accelerate", "ddp", "deepspeed", "fsdp", "strategy"), _ONE_DEVICE),
    "bias": "an adapter trains no biases; leave it out",
    "early_stopping": "training does not stop early; set its length, and read curve",
    "target_kl": "target_kl is not offered; kl_coef keeps the policy near the model",
    "use_rslora": "use_rslora is not offered; multiply lora_alpha by the square root of lora_r",
}


def foreign_input_hint(engine: str, name: str) -> str:
    """Returns what to do in place of an input that an engine does not have, or nothing."""
    if engine.startswith("train.") and name == "adapter":
        return "training starts from a model: write the adapter into it with model.merge"
    return ""


def foreign_value_hint(engine: str, param: str, value: Any) -> str:
    """Returns what to do in place of a value that a parameter does not take, or nothing."""
    if (engine, param) == ("llm.agent", "tools") and "search" in str(value):
        return "to search the web, call a search API with http.request in a step before this one"
    return ""


def foreign_name_hint(
    name: str, known: Collection[str], *, runs_model: bool, trains: bool = False
) -> str:
    """Returns what to write for a name of another tool; empty where the name is not known.

    Args:
        name: as a step has it.
        known: the names that are valid there.
        runs_model: whether the engine runs a language model here.
        trains: whether it trains one.
    """
    spelled = re.sub(r"[A-Z]", lambda m: f"_{m[0].lower()}", name)
    if trains and spelled in _REFUSED_IN_TRAINING:
        return _REFUSED_IN_TRAINING[spelled]
    if runs_model and spelled in _REFUSED:
        return _REFUSED[spelled]
    camel = re.sub(r"_([a-z0-9])", lambda m: m[1].upper(), name)
    if camel != name and camel in known:
        return f"{name} is written {camel}"
    ours = _OURS.get(name, "")
    return f"{name} is written {ours}" if ours.partition(".")[0] in known else ""
