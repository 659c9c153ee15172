"""Streams a large image from buildah into the running cluster's containerd."""

import subprocess
import tempfile

from e2e.cluster.images import ImageError
from e2e.cluster.namespaces import Namespaces
from e2e.cluster.node import socket
from e2e.cluster.paths import BINS, STATE


def stream_image(inside: Namespaces, name: str) -> None:
    """Streams a large image to the cluster's containerd, without an archive in between.

    Layers are unpacked as they arrive and not stored packed: an archive and packed layers would
    each take the image's size once more.

    Raises:
        ImageError: one of the two programs failed; has the end of its output.
    """
    ctr = [str(BINS / "ctr"), "--address", str(socket(STATE)), "-n", "k8s.io"]
    words = inside.command(*ctr, "images", "import", "--local", "--discard-unpacked-layers", "-")
    out = f"docker-archive:/dev/stdout:{name}"
    with tempfile.TemporaryFile("w+") as said:
        send = subprocess.Popen(
            ["buildah", "push", "--quiet", "--disable-compression", name, out],
            stdout=subprocess.PIPE,
            stderr=said,
        )
        received = subprocess.run(words, stdin=send.stdout, stdout=said, stderr=said, check=False)
        assert send.stdout is not None
        send.stdout.close()
        if send.wait() or received.returncode:
            said.seek(0)
            raise ImageError(f"{name} was not imported:\n{said.read()[-4000:]}")
