"""The project's images for the cluster's pods, built on a local base image."""

import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from e2e.cluster.images import build, build_only, id_of, run
from e2e.cluster.paths import IMAGES

ROOT = Path(__file__).parents[2]
BASE_IMAGE = "localhost/flowmesh-base:1"
_BASE_PACKAGES = "python3,python3-venv,ca-certificates,libnuma1"
_SUITE = "bookworm"
_S3_PROGRAM = "github.com/versity/versitygw/cmd/versitygw"


@dataclass(frozen=True, slots=True)
class ProjectImage:
    """An image of the project: its name, Dockerfile and build arguments."""

    name: str
    dockerfile: str
    arguments: Mapping[str, str] = field(default_factory=dict)

    @property
    def archive(self) -> Path:
        """The path of its archive."""
        return IMAGES / f"{self.name.partition('/')[2].replace(':', '-')}.tar"


OPERATOR = ProjectImage("localhost/flowmesh-operator:e2e", "Dockerfile.operator")
THIN = ProjectImage("localhost/flowmesh-worker:e2e-thin", "Dockerfile.worker", {"FLAVOR": "thin"})
FULL = ProjectImage("localhost/flowmesh-worker:e2e-cpu", "Dockerfile.worker", {"FLAVOR": "cpu"})
S3 = ProjectImage("localhost/flowmesh-s3:e2e", "Dockerfile.s3")
IN_CI = (S3, OPERATOR, THIN)
"""The images of the scenarios of `make e2e`."""


def build_project_image(image: ProjectImage) -> Path:
    """Builds an image, or uses the cached one if nothing changed; returns its archive.

    Raises:
        ImageError: the build failed; has the end of its output.
    """
    start = time.monotonic()
    known, made_of = image.archive.with_suffix(".of"), sources(image)
    if known.is_file() and known.read_text() == f"{id_of(image.archive)} {made_of}":
        return image.archive
    known.unlink(missing_ok=True)
    if image is S3:
        _build_s3()
    else:
        _base()
        arguments = {"BASE": BASE_IMAGE, **image.arguments}
        build(image.name, ROOT, ROOT / image.dockerfile, image.archive, arguments)
    known.write_text(f"{id_of(image.archive)} {made_of}")
    took = time.monotonic() - start
    sys.stderr.write(
        f"image {image.name}: {image.archive.stat().st_size >> 20} MiB, {took:.0f} s\n"
    )
    return image.archive


def sources(image: ProjectImage) -> str:
    """Returns a digest of an image's sources: buildah needs a minute to find that none changed.

    The base image is not part of it, since it is built once.
    """
    dockerfile = ROOT / image.dockerfile
    found = hashlib.sha256(f"{image.name}{sorted(image.arguments.items())}".encode())
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile.read_text(), re.MULTILINE)
    tops = [ROOT / name for words in copied for name in words.split()]
    files = {file for top in tops for file in (top.rglob("*") if top.is_dir() else [top])}
    for file in sorted({dockerfile, *files}):
        if file.is_file() and "__pycache__" not in file.parts:
            data = file.read_bytes()
            found.update(f"{file.relative_to(ROOT)} {file.stat().st_mode} {len(data)}\n".encode())
            found.update(data)
    return found.hexdigest()


def build_full() -> None:
    """Builds the worker image with every engine; it stays in buildah's storage.

    Raises:
        ImageError: the build failed; has the end of its output.
    """
    start = time.monotonic()
    _base()
    arguments = {"BASE": BASE_IMAGE, **FULL.arguments}
    build_only(FULL.name, ROOT, ROOT / FULL.dockerfile, arguments)
    sys.stderr.write(f"image {FULL.name}: {time.monotonic() - start:.0f} s\n")


def _base() -> None:
    """Builds a Debian with Python, in place of the public image in the Dockerfiles."""
    system = IMAGES / "base-rootfs.tar"
    if not system.is_file():
        system.parent.mkdir(parents=True, exist_ok=True)
        made = system.with_suffix(".part.tar")
        include = f"--include={_BASE_PACKAGES}"
        run(["mmdebstrap", "--variant=minbase", include, _SUITE, str(made)])
        made.rename(system)
    with tempfile.TemporaryDirectory(dir=IMAGES) as folder:
        (Path(folder) / system.name).hardlink_to(system)
        file = Path(folder) / "Dockerfile"
        file.write_text(f"FROM scratch\nADD {system.name} /\n")
        run(["buildah", "bud", "--layers", "--tag", BASE_IMAGE, "--file", str(file), folder])


def _build_s3() -> None:
    """Builds the S3 server's image as Dockerfile.s3, with this machine's Go in place of an image.

    It is compiled as by `make tools`, so that Go's cache has everything already.
    """
    with tempfile.TemporaryDirectory() as folder:
        run(
            [os.environ.get("GO", "go"), "build", "-ldflags=-s -w", "-o", folder, _S3_PROGRAM],
            cwd=ROOT / "tools",
            env={"CGO_ENABLED": "0"},
        )
        lines = (ROOT / S3.dockerfile).read_text().partition("FROM scratch\n")
        file = Path(folder) / "Dockerfile"
        file.write_text((lines[1] + lines[2]).replace("--from=build /versitygw", "versitygw"))
        build(S3.name, Path(folder), file, S3.archive)
