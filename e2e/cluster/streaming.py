"""From buildah into the running cluster's containerd, for an image of gigabytes."""

import subprocess
import tempfile

from e2e.cluster.images import ImageError
from e2e.cluster.namespaces import Namespaces
from e2e.cluster.node import socket
from e2e.cluster.places import BINS, STATE


def stream_image(inside: Namespaces, name: str) -> None:
    """Gives a large image to the cluster's containerd without an archive between them.

    Layers are unpacked as they come and not kept packed: an archive and packed layers would take
    the image's size twice more.

    Raises:
        ImageError: one of the two ends failed; with the end of what it said.
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
