"""Images of the cluster's pods: built with buildah, stored as archives."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from e2e.cluster.node import PAUSE_IMAGE
from e2e.cluster.paths import IMAGES

_PAUSE = Path(__file__).parents[1] / "tools" / "pause"


class ImageError(RuntimeError):
    """An image does not build or cannot be imported."""


def pause_image() -> Path:
    """Returns the archive of the pause image, which keeps a pod's namespaces."""
    archive = IMAGES / "pause.tar"
    if archive.is_file():
        return archive
    with tempfile.TemporaryDirectory() as folder:
        run(
            [os.environ.get("GO", "go"), "build", "-ldflags=-s -w", "-o", f"{folder}/pause", "."],
            cwd=_PAUSE,
            env={"CGO_ENABLED": "0"},
        )
        shutil.copy(_PAUSE / "Dockerfile", folder)
        build(PAUSE_IMAGE, Path(folder), Path(folder) / "Dockerfile", archive)
    return archive


def build(
    name: str,
    context: Path,
    dockerfile: Path,
    archive: Path,
    arguments: Mapping[str, str] | None = None,
) -> None:
    """Builds an image and writes it as an archive, layers uncompressed.

    Args:
        name: the image's name and tag.
        context: the folder that COPY reads from.
        dockerfile: the Dockerfile.
        archive: the file to write.
        arguments: build arguments.

    Raises:
        ImageError: the build failed; has the end of its output.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    build_only(name, context, dockerfile, arguments)
    _export(name, archive)


def build_only(
    name: str, context: Path, dockerfile: Path, arguments: Mapping[str, str] | None = None
) -> None:
    """Builds an image as :func:`build`, but leaves it in buildah's storage."""
    words = ["buildah", "bud", "--isolation", "chroot", "--layers", "--tag", name]
    for key, value in (arguments or {}).items():
        words += ["--build-arg", f"{key}={value}"]
    # The machine's own certificates and index settings, read-only and in no layer.
    for path in ("/etc/ssl/certs", "/etc/pip.conf"):
        if Path(path).exists():
            words += ["--volume", f"{path}:{path}:ro"]
    run([*words, "--file", str(dockerfile), str(context)])


def _export(name: str, archive: Path) -> None:
    """Writes the archive unless it has this image already."""
    image = run(["buildah", "inspect", "--type", "image", "--format", "{{.FromImageID}}", name])
    if id_of(archive) == image:
        return
    archive.unlink(missing_ok=True)
    run(["buildah", "push", "--disable-compression", name, f"docker-archive:{archive}:{name}"])
    archive.with_suffix(".id").write_text(image)


def id_of(archive: Path) -> str:
    """Returns the id of the image in an archive; empty where there is none."""
    known = archive.with_suffix(".id")
    return known.read_text() if archive.is_file() and known.is_file() else ""


def run(words: list[str], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Runs a program of this machine to its end; returns its output.

    Raises:
        ImageError: the program failed; has the end of its output.
    """
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        output = (done.stdout + done.stderr)[-4000:]
        raise ImageError(f"{' '.join(words[:3])} ended with {done.returncode}:\n{output}")
    return done.stdout.strip()
