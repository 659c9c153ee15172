"""Ray Serve's side of ``bench/serving_chain.py``: three no-op deployments, each calls the next.

Runs in Ray's environment, without FlowMesh's packages. ``tuned`` is what Ray's own pages advise:
asynchronous methods, ``max_ongoing_requests=1000`` and ``RAY_SERVE_THROUGHPUT_OPTIMIZED=1``
(https://docs.ray.io/en/latest/serve/advanced-guides/performance.html); ``haproxy`` adds
``RAY_SERVE_ENABLE_HA_PROXY=1``, its proxy in C (https://docs.ray.io/en/master/cluster/kubernetes/
user-guides/kuberay-serve-high-throughput.html). Access logs are off in both, as they are in ours.
The default uses asynchronous methods too, and nothing else.

Prints where it serves, then serves until standard input ends.
"""

import argparse
import json
import os
import socket
import sys

VARIANTS = {
    "default": {},
    "tuned": {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"},
    "haproxy": {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_SERVE_ENABLE_HA_PROXY": "1"},
}
_ONGOING = 1000


def serve_chain(variant: str) -> str:
    """Starts Ray and the chain; returns its URL."""
    import ray  # noqa: PLC0415 - it reads its variables when it is imported
    from ray import serve  # noqa: PLC0415 - as above
    from ray.serve.config import HTTPOptions  # noqa: PLC0415 - as above
    from ray.serve.schema import LoggingConfig  # noqa: PLC0415 - as above
    from starlette.requests import Request  # noqa: PLC0415 - as above

    ray.init(
        "local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False
    )
    options = {} if variant == "default" else {"max_ongoing_requests": _ONGOING}
    actor = {"num_cpus": 0}

    @serve.deployment(ray_actor_options=actor, **options)
    class Last:
        async def __call__(self, value: dict[str, object]) -> dict[str, object]:
            return value

    @serve.deployment(ray_actor_options=actor, **options)
    class Middle:
        def __init__(self, following: object) -> None:
            self._following = following

        async def __call__(self, value: dict[str, object]) -> dict[str, object]:
            return await self._following.remote(value)  # type: ignore[attr-defined,no-any-return]

    @serve.deployment(ray_actor_options=actor, **options)
    class First:
        def __init__(self, following: object) -> None:
            self._following = following

        async def __call__(self, request: Request) -> dict[str, object]:
            value = await request.json()
            return await self._following.remote(value)  # type: ignore[attr-defined,no-any-return]

    port = _free_port()
    serve.start(http_options=HTTPOptions(host="127.0.0.1", port=port))
    quiet = (
        {} if variant == "default" else {"logging_config": LoggingConfig(enable_access_log=False)}
    )
    chain = First.bind(Middle.bind(Last.bind()))
    serve.run(chain, name="chain", route_prefix="/", **quiet)
    return f"http://127.0.0.1:{port}/"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def main() -> None:
    """Serves until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variant", choices=VARIANTS)
    variant = parser.parse_args().variant
    os.environ.update(VARIANTS[variant])
    url = serve_chain(variant)
    import ray  # noqa: PLC0415 - as above

    ready = {"url": url, "processes": {"all": os.getpid()}, "version": ray.__version__}
    print(json.dumps(ready), flush=True)
    for _ in sys.stdin:
        continue
    ray.shutdown()


if __name__ == "__main__":
    main()
