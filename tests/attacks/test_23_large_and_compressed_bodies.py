"""Attacker: T1, a tenant with the right to submit and to upload.
Action: sends 130 MiB of JSON, and compressed bodies and archives of a megabyte that become 256.
Must not happen: the control plane grows by more than the largest body, answers 5xx, or ends.
"""

import contextlib
import gzip
import http.client
import io
import json
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.attacks.control_process import ControlProcess, started
from tests.flowmesh_control.fabric import API_TOKEN, workflow

pytestmark = pytest.mark.slow

GROWTH_BYTES_MAX = 128 << 20
ROW = b'{"a": 1}\n'
JSON_PATHS = ("/v1/runs", "/v1/plan")
BODY_BYTES = 130 << 20
BOMB_BYTES = 256 << 20
DOCUMENT = workflow("w", {"steps": [{"name": "one", "uses": "test.noop"}]})


def archive(name: str, content: bytes) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


def zeros(compressed: Callable[[int], "zlib._Compress"], size: int) -> bytes:
    """Returns so many compressed zeros without holding them."""
    packer = compressed(1)
    pieces = [packer.compress(bytes(1 << 20)) for _ in range(size >> 20)]
    return b"".join(pieces) + packer.flush()


def gzipped(level: int) -> "zlib._Compress":
    return zlib.compressobj(level, zlib.DEFLATED, 31)


def deflated(level: int) -> "zlib._Compress":
    return zlib.compressobj(level)


def send(control: ControlProcess, path: str, body: bytes, encoding: str = "") -> tuple[int, bytes]:
    """Sends a body; returns the answer, also where it comes before the body's end."""
    connection = http.client.HTTPConnection(control.address, timeout=300)
    headers = {"Authorization": f"Bearer {API_TOKEN}"}
    if encoding:
        headers["Content-Encoding"] = encoding
    try:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.request("POST", path, body=body, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_large_and_compressed_bodies_are_refused_and_honest_ones_taken(tmp_path: Path) -> None:
    bomb = {"gzip": zeros(gzipped, BOMB_BYTES), "deflate": zeros(deflated, BOMB_BYTES)}
    tree, rows = "/v1/trees?namespace=team-a", "/v1/datasets?namespace=team-a"
    packed = gzip.compress(archive("config.json", b"{}"))
    with started(tmp_path) as control:
        assert send(control, rows, ROW)[0] == 201
        before = control.peak_bytes()
        for path in JSON_PATHS:
            body = json.dumps({"document": DOCUMENT, "x": ""}).encode()
            large = body[:-2] + b"x" * (BODY_BYTES - len(body)) + b'"}'
            assert send(control, path, large)[0] == 413
            for encoding, data in bomb.items():
                assert send(control, path, data, encoding)[0] in (400, 413), (path, encoding)
        # An archive is not unpacked twice, by whatever name.
        for data in (packed, bomb["gzip"]):
            status, told = send(control, tree, data)
            assert (status, b"not a tar file" in told) == (400, True), told
        for encoding, data in bomb.items():  # the space for uploads is bounded
            status, told = send(control, f"{rows}&name=x.jsonl", data, encoding)
            assert status in (400, 413), told
        status, told = send(control, f"{rows}&name=x.jsonl.gz", gzip.compress(ROW))
        assert status in (400, 422), told  # nor is a file
        assert control.peak_bytes() - before <= GROWTH_BYTES_MAX
        # The rightful forms of the same are taken.
        small = json.dumps({"document": DOCUMENT}).encode()
        assert send(control, "/v1/plan", gzip.compress(small), "gzip")[0] == 200
        assert send(control, rows, gzip.compress(ROW), "gzip")[0] == 201
        assert send(control, tree, archive("config.json", b"{}"))[0] == 201
        assert control.call("GET", "/healthz")[0] == 200
