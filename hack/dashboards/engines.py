"""The dashboard of engines and GPUs: vLLM's own metrics, and those of NVIDIA's DCGM exporter.

Both are there only where Prometheus scrapes them too: a vLLM server that workflows call, and the
exporter of the GPU operator. The fabric exports neither.
"""

from hack.dashboards.panel import Board, Kind, Panel, Query

_MODEL = '{model_name=~"$model_name"}'
_WINDOW = "[$__rate_interval]"
_VLLM, _DCGM = "vllm", "dcgm"


def _rate(metric: str) -> str:
    return f"sum by (model_name) (rate({metric}{_MODEL}{_WINDOW}))"


def _quantiles(metric: str) -> tuple[Query, ...]:
    by = f"sum by (le, model_name) (rate({metric}_bucket{_MODEL}{_WINDOW}))"
    return tuple(
        Query(f"histogram_quantile({q}, {by})", f"{{{{model_name}}}} {name}", needs=_VLLM)
        for q, name in ((0.5, "p50"), (0.99, "p99"))
    )


def _gpu(metric: str, factor: str = "") -> tuple[Query, ...]:
    legend = "{{Hostname}} {{gpu}}"
    return (Query(f"max by (Hostname, gpu) ({metric}){factor}", legend, needs=_DCGM),)


_ENGINES = (
    Panel(
        "Tokens",
        (
            Query(_rate("vllm:prompt_tokens_total"), "{{model_name}} prompt", needs=_VLLM),
            Query(_rate("vllm:generation_tokens_total"), "{{model_name}} answer", needs=_VLLM),
        ),
        "ops",
        "Tokens per second.",
    ),
    Panel(
        "Time to the first token",
        _quantiles("vllm:time_to_first_token_seconds"),
        "s",
        "Grows with the queue: see the waiting requests in the panel Requests.",
    ),
    Panel(
        "Time between tokens",
        _quantiles("vllm:time_per_output_token_seconds"),
        "s",
        "Grows with the size of the batch.",
    ),
    Panel(
        "Requests",
        (
            Query(
                f"sum by (model_name) (vllm:num_requests_running{_MODEL})",
                "{{model_name}} running",
                needs=_VLLM,
            ),
            Query(
                f"sum by (model_name) (vllm:num_requests_waiting{_MODEL})",
                "{{model_name}} waiting",
                needs=_VLLM,
            ),
        ),
        "short",
        "Requests that run in the engine, and that wait in its queue.",
    ),
    Panel(
        "KV cache",
        (
            Query(
                f"max by (model_name) (vllm:kv_cache_usage_perc{_MODEL})",
                "{{model_name}}",
                needs=_VLLM,
            ),
        ),
        "percentunit",
        "The share of the key-value cache in use. Near 1, requests are preempted and computed"
        " again.",
        limit=0.95,
    ),
    Panel(
        "Prefix cache hits",
        (
            Query(
                f"{_rate('vllm:prefix_cache_hits_total')}"
                f" / {_rate('vllm:prefix_cache_queries_total')}",
                "{{model_name}}",
                needs=_VLLM,
            ),
        ),
        "percentunit",
        "The share of prompt tokens that were found in the cache and not computed.",
    ),
)

_GPUS = (
    Panel(
        "GPU utilization",
        _gpu("DCGM_FI_DEV_GPU_UTIL", " / 100"),
        "percentunit",
        "The share of time in which a kernel ran. If it stays near 0 in a pool with a price, see"
        " the alert FlowMeshPaidWorkersIdle.",
    ),
    Panel(
        "GPU memory",
        _gpu("DCGM_FI_DEV_FB_USED", " * 1048576"),
        "bytes",
        "Memory in use. Engines reserve most of it when they start.",
    ),
    Panel(
        "GPU power",
        _gpu("DCGM_FI_DEV_POWER_USAGE"),
        "watt",
        "Power draw as measured by the driver.",
        Kind.STACKED,
    ),
)

ENGINES = Board(
    uid="flowmesh-engines",
    title="FlowMesh / Engines and GPUs",
    about="vLLM's own metrics and those of GPUs, if Prometheus scrapes them.",
    variables=(("model_name", "vllm:num_requests_running"),),
    rows=(("vLLM", _ENGINES), ("GPUs", _GPUS)),
)
