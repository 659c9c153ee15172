"""The parameter ``engine``: how a model is loaded, beyond the identity fields.

The compiler checks it at admission; the engine hosts read it. What tenants who share an engine
would have to agree on (batches, shares of memory) is not among it: the pool sets it
(``spec.pool_llm``).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from flowmesh_core.catalog.foreign_names import foreign_name_hint

FORMAT = "engine-settings"
QUANTIZATION, KV_CACHE_DTYPE, MAX_MODEL_LEN = "quantization", "kvCacheDtype", "maxModelLen"
_CHOICES: Mapping[str, tuple[str, ...]] = {
    QUANTIZATION: ("awq", "gptq", "fp8", "bitsandbytes"),
    KV_CACHE_DTYPE: ("fp8", "fp8_e4m3", "fp8_e5m2", "bfloat16"),
}
_KEYS = (QUANTIZATION, KV_CACHE_DTYPE, MAX_MODEL_LEN)
_AUTO = "auto"


def settings_problems(
    settings: Mapping[str, Any], implementation: str
) -> Iterator[tuple[str, str]]:
    """Yields the settings that cannot be, each with the reason.

    Args:
        settings: by name.
        implementation: the step's.
    """
    for name, value in settings.items():
        if problem := _problem(name, value, implementation):
            yield name, problem


def _problem(name: str, value: Any, implementation: str) -> str:
    if name not in _KEYS:
        hint = foreign_name_hint(name, _KEYS, runs_model=True)
        return hint or f"engine has no {name!r}; there is {', '.join(_KEYS)}"
    if name == MAX_MODEL_LEN:
        whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
        return "" if whole else f"expected a number of tokens, got {value!r}"
    if value == _AUTO:
        return f"leave {name} out to use the model's own"
    if value not in _CHOICES[name]:
        return f"{value!r} is not allowed; use one of {', '.join(_CHOICES[name])}"
    return "" if implementation == "vllm" else f"engine.{name} needs implementation: vllm"
