"""A control plane in its own process, to measure its memory."""

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tests.flowmesh_control.fabric import API_TOKEN

GROWTH_BYTES_MAX = 64 << 20
_LONG_S = 600


@dataclass
class ControlProcess:
    process: "subprocess.Popen[bytes]"
    address: str

    def call(self, method: str, path: str, body: bytes | BinaryIO | None = None) -> tuple[int, Any]:
        """Sends a request; returns the status and the decoded answer."""
        connection = http.client.HTTPConnection(self.address, timeout=_LONG_S)
        try:
            headers = {"Authorization": f"Bearer {API_TOKEN}"}
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            data = response.read()
            return response.status, json.loads(data) if data.startswith(b"{") else data
        finally:
            connection.close()

    def peak_bytes(self) -> int:
        """Returns the peak resident memory of the process, without its children."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) << 10


@contextmanager
def started(root: Path) -> Iterator[ControlProcess]:
    """Starts a control plane over a directory below ``root``, and ends it after the block."""
    arguments = ["-m", "tests.flowmesh_control.serve", str(root), "0"]
    process = subprocess.Popen([sys.executable, *arguments])
    try:
        url = root / "url"
        while not (url.exists() and url.read_text()):
            assert process.poll() is None, "the control plane did not start"
            time.sleep(0.02)
        yield ControlProcess(process, url.read_text().removeprefix("http://"))
    finally:
        process.terminate()
        process.wait(60)
