"""KEDA: an image with its two programs, and its own manifests."""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml
from e2e.cluster.images import ImageError, build
from e2e.cluster.paths import BINS, IMAGES
from e2e.cluster.tools import KEDA_PROGRAMS, MODULES, build_keda, keda_sources

NAMESPACE = "keda"
IMAGE = "localhost/keda:e2e"
ARCHIVE = IMAGES / "keda.tar"
CERTIFICATES = "kedaorg-certs"
"""The Secret with the certificate of both programs; they trust each other by it."""
API_SERVICE = "v1beta1.external.metrics.k8s.io"
_ROTATES = "--enable-cert-rotation=true"

Json = dict[str, Any]


def keda_image() -> Path:
    """Builds the programs and their image if they are missing; returns the archive.

    Raises:
        ToolsError: a program does not build.
        ImageError: the image does not build.
    """
    build_keda(BINS)
    known, sums = ARCHIVE.with_suffix(".of"), (MODULES / "keda" / "go.sum").read_text()
    if ARCHIVE.is_file() and known.is_file() and known.read_text() == sums:
        return ARCHIVE
    with tempfile.TemporaryDirectory(dir=IMAGES) as folder:
        for program in KEDA_PROGRAMS:
            (Path(folder) / program).hardlink_to(BINS / program)
        build(IMAGE, Path(folder), MODULES / "keda" / "Dockerfile", ARCHIVE)
    known.write_text(sums)
    return ARCHIVE


def manifests() -> list[Json]:
    """Returns KEDA's manifests, without the webhook, with this image and prepared certificates.

    Its operator would create the certificates itself, and end and be restarted until the kubelet
    has put them into its pods, which takes minutes.

    Raises:
        ToolsError: its module cannot be fetched.
        ImageError: kubectl cannot build the manifests.
    """
    words = [str(BINS / "kubectl"), "kustomize", str(keda_sources() / "config" / "minimal")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"KEDA's manifests: {done.stderr.strip()}")
    found = [item for item in yaml.safe_load_all(done.stdout) if item]
    for item in found:
        if item["kind"] == "Deployment":
            (container,) = item["spec"]["template"]["spec"]["containers"]
            container |= {"image": IMAGE, "imagePullPolicy": "Never"}
            container["args"] = [word for word in container["args"] if word != _ROTATES]
    return found


def definitions() -> list[Json]:
    """Returns only its custom resource definitions."""
    return [item for item in manifests() if item["kind"] == "CustomResourceDefinition"]


def as_list(items: list[Json]) -> str:
    """Returns objects as a list that kubectl reads."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
