"""A client of Prometheus' API, and a Prometheus server on the loopback."""

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

STARTS_WITHIN_S = 60.0
ANSWERS_WITHIN_S = 30.0
REMEDY = "Debian and Ubuntu: apt-get install --no-install-recommends prometheus (with promtool)"


class PrometheusError(Exception):
    """Prometheus is missing, does not start, or refuses a query; the message says why."""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running server; its URL has no slash at the end."""

    url: str

    def instant(self, expr: str) -> list[dict[str, Any]]:
        """Returns the series of an expression now, each with ``metric`` and ``value``.

        Raises:
            PrometheusError: the expression is invalid, or the server does not answer.
        """
        return self._result("query", {"query": expr})

    def over(self, expr: str, start_s: float, end_s: float, step_s: float) -> list[dict[str, Any]]:
        """Returns the series over time, each with ``metric`` and ``values``."""
        times = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:g}"}
        return self._result("query_range", {"query": expr, **times})

    def rules(self) -> list[dict[str, Any]]:
        """Returns every loaded rule with its ``state``, ``health`` and ``lastError``."""
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]

    def _result(self, what: str, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
        found = self.get(f"{what}?{urllib.parse.urlencode(parameters)}")["result"]
        return found if isinstance(found, list) else [found]

    def get(self, path: str) -> Any:
        """Returns ``data`` of ``/api/v1/<path>``.

        Raises:
            PrometheusError: the server refuses the request, or does not answer.
        """
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=ANSWERS_WITHIN_S) as r:
                return json.load(r)["data"]
        except urllib.error.HTTPError as e:
            raise PrometheusError(f"{path}: {e.read().decode(errors='replace')[:500]}") from e
        except (OSError, ValueError) as e:
            raise PrometheusError(f"{self.url} does not answer: {e}") from e


def program(name: str) -> str:
    """Returns the path of ``prometheus`` or ``promtool``.

    Raises:
        PrometheusError: it is not installed.
    """
    found = shutil.which(name)
    if found is None:
        raise PrometheusError(f"{name} is not installed. {REMEDY}")
    return found


@contextlib.contextmanager
def scraping(
    target: str,
    folder: Path,
    *,
    token: str = "",
    tls: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    rules: Path | None = None,
    every_s: int = 1,
    routers: Sequence[str] = (),
) -> Iterator[Prometheus]:
    """Runs a Prometheus on the loopback that scrapes one address, during the block.

    Args:
        target: ``http://host:port`` of a control plane, or ``https``.
        folder: the folder of its configuration and data.
        token: presented as a bearer token.
        tls: Prometheus' ``tls_config``, such as ``ca_file`` and ``server_name``.
        labels: added to every series.
        rules: a file of rules to load.
        every_s: seconds between scrapes, and between evaluations of the rules.
        routers: ``http://host:port`` of routers of services, whose metrics need no token.

    Raises:
        PrometheusError: it is not installed or does not start.
    """
    parts = urllib.parse.urlsplit(target)
    job: dict[str, Any] = {
        "job_name": "flowmesh",
        "scheme": parts.scheme,
        "static_configs": [{"targets": [parts.netloc], "labels": dict(labels or {})}],
    }
    if token:
        job["authorization"] = {"credentials": token}
    if tls:
        job["tls_config"] = dict(tls)
    config = {
        "global": {"scrape_interval": f"{every_s}s", "evaluation_interval": f"{every_s}s"},
        "scrape_configs": [job, *([_of_routers(routers)] if routers else [])],
        "rule_files": [str(rules)] if rules else [],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    address = f"127.0.0.1:{_free_port()}"
    arguments = [
        program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log)
    try:
        yield _ready(process, Prometheus(f"http://{address}"), folder / "prometheus.log")
    finally:
        process.terminate()
        process.wait(30)


def _of_routers(urls: Sequence[str]) -> dict[str, Any]:
    targets = [urllib.parse.urlsplit(url).netloc for url in urls]
    return {"job_name": "routers", "static_configs": [{"targets": targets}]}


def _ready(process: "subprocess.Popen[bytes]", server: Prometheus, log: Path) -> Prometheus:
    until = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{server.url}/-/ready", timeout=1):
                return server
        except OSError:
            time.sleep(0.1)
    raise PrometheusError(f"prometheus did not start: {log.read_text(encoding='utf-8')[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
