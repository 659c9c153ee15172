"""Names that other tools use for parameters: answered with ours, or with why there is none.

Called where a step has a parameter that its contract does not know. vLLM's names are those of its
release 0.27.1.
"""

import re
from collections.abc import Collection

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
_NO_GRAMMAR = "grammars are not offered; use jsonSchema"
_BY_WORKER = "is not set by a step, since tenants share engines: the worker chooses it"
_REFUSED = {
    "trust_remote_code": "trust_remote_code is never on; convert the model",
    "logit_bias": "logit_bias is not offered; use badWords, or penalties",
    "grammar": _NO_GRAMMAR,
    "guided_grammar": _NO_GRAMMAR,
    "rope_scaling": "rope scaling stands in the model's config.json",
    "rope_theta": "rope scaling stands in the model's config.json",
    "hf_overrides": "hf_overrides is not offered; change the model's config.json",
    "do_sample": "do_sample is not a parameter; write temperature: 0 for greedy decoding",
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


def foreign_name_hint(name: str, known: Collection[str], *, runs_model: bool) -> str:
    """Returns what to write for a name of another tool; empty where the name is not known.

    Args:
        name: as a step has it.
        known: the names that are valid there.
        runs_model: whether the engine runs a language model here.
    """
    spelled = re.sub(r"[A-Z]", lambda m: f"_{m[0].lower()}", name)
    if runs_model and spelled in _REFUSED:
        return _REFUSED[spelled]
    camel = re.sub(r"_([a-z0-9])", lambda m: m[1].upper(), name)
    if camel != name and camel in known:
        return f"{name} is written {camel}"
    ours = _OURS.get(name, "")
    return f"{name} is written {ours}" if ours.partition(".")[0] in known else ""
