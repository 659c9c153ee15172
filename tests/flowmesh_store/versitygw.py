"""A real S3 server on a free local port, over a directory: versitygw."""

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import boto3

ACCESS_KEY = "flowmesh-test"
SECRET_KEY = "flowmesh-test-secret"
BUCKET = "fabric"
_START_S = 60.0


@dataclass(frozen=True)
class S3Server:
    """Where the server listens and where it keeps its buckets."""

    endpoint: str
    directory: Path

    def url(self, prefix: str = "") -> str:
        return f"s3://{BUCKET}/{prefix}?endpoint={self.endpoint}&region=us-east-1"


def binary() -> str | None:
    """The server's program: ``FLOWMESH_VERSITYGW``, ``bin/versitygw`` or from the PATH."""
    local = Path(__file__).parents[2] / "bin" / "versitygw"
    named = os.environ.get("FLOWMESH_VERSITYGW")
    if named:
        return named
    return str(local) if local.exists() else shutil.which("versitygw")


def set_credentials(environment: "os._Environ[str]") -> None:
    environment["AWS_ACCESS_KEY_ID"] = ACCESS_KEY
    environment["AWS_SECRET_ACCESS_KEY"] = SECRET_KEY
    environment["AWS_EC2_METADATA_DISABLED"] = "true"
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        environment.pop(name, None)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(
    program: str,
    directory: Path,
    *options: str,
    bucket: bool = True,
    port: int = 0,
    secret: str = SECRET_KEY,
    certificate: Path | None = None,
) -> Iterator[S3Server]:
    """Starts the server as the chart does, makes a bucket, and ends the server at the end.

    With ``certificate``, a folder with ca.crt, tls.crt and tls.key, it serves TLS.
    """
    data = directory / "buckets"
    data.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    environment = {
        **os.environ, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": secret,
    }  # fmt: skip
    if certificate is not None:
        names = {"--cert": "tls.crt", "--key": "tls.key"}
        options += tuple(w for key, name in names.items() for w in (key, str(certificate / name)))
    authority = None if certificate is None else certificate / "ca.crt"
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet", *options,
             "posix", str(data)],
            env=environment, stdout=log, stderr=log, cwd=directory,
        )  # fmt: skip
        try:
            server = S3Server(f"http{'s' if authority else ''}://127.0.0.1:{port}", data)
            _await_start(server, process, directory / "server.log", authority)
            client = boto3.client(
                "s3", endpoint_url=server.endpoint, region_name="us-east-1",
                aws_access_key_id=ACCESS_KEY, aws_secret_access_key=secret,
                verify=str(authority) if authority else None,
            )  # fmt: skip
            if bucket:
                client.create_bucket(Bucket=BUCKET)
            client.close()
            yield server
        finally:
            process.kill()  # to end in order it would wait ten seconds for idle connections
            process.wait(30)


def _await_start(
    server: S3Server, process: "subprocess.Popen[bytes]", log: Path, authority: Path | None
) -> None:
    tls = ssl.create_default_context(cafile=authority) if authority else None
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"versitygw ended: {log.read_text()[-2000:]}")
        try:
            urllib.request.urlopen(server.endpoint, timeout=5, context=tls).close()
        except urllib.error.HTTPError as answered:
            answered.close()
            return
        except OSError:
            time.sleep(0.02)  # the condition waited for is the server's first answer
        else:
            return
    raise RuntimeError(f"versitygw did not answer within {_START_S} s: {log.read_text()[-2000:]}")
