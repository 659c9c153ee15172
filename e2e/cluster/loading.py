"""Loads images and a volume into the running cluster, for an installation of the chart."""

import json
import os
import shutil
import sys
import time
from pathlib import Path

from e2e.cluster.image_store import import_image
from e2e.cluster.images import id_of
from e2e.cluster.keda import keda_image
from e2e.cluster.node import socket
from e2e.cluster.paths import LOADED, STATE
from e2e.cluster.project_images import FULL, IN_CI, build_full, build_project_image
from e2e.cluster.running import kubectl, namespaces
from e2e.cluster.streaming import stream_image

_USER = 10001
_VOLUMES = {"store": "20Gi"}


def load() -> None:
    """Builds the project's images, imports them, and creates volumes; may be repeated.

    Raises:
        ClusterError: no cluster runs.
        ImageError: an image does not build.
    """
    namespaces()
    for image in IN_CI:
        _import(build_project_image(image))
    for name, size in _VOLUMES.items():
        _volume(name, size)


def load_full() -> None:
    """Builds the worker image with every engine and imports it.

    Raises:
        ClusterError: no cluster runs.
        ImageError: the image does not build, or cannot be imported.
    """
    inside = namespaces()
    build_full()
    start = time.monotonic()
    stream_image(inside, FULL.name)
    sys.stderr.write(f"imported {FULL.name}: {time.monotonic() - start:.0f} s\n")


def load_keda() -> None:
    """Builds KEDA and its image, and imports it.

    Raises:
        ClusterError: no cluster runs.
        ToolsError: KEDA does not build.
        ImageError: the image does not build, or cannot be imported.
    """
    namespaces()
    _import(keda_image())


def _import(archive: Path) -> None:
    held = json.loads(LOADED.read_text())
    if held.get(archive.name) != id_of(archive):
        import_image(socket(STATE), archive)
        LOADED.write_text(json.dumps({**held, archive.name: id_of(archive)}))


def _volume(name: str, size: str) -> None:
    """Creates a volume from a directory of the node; the cluster has no provisioner."""
    path = STATE / "volumes" / name
    if kubectl("get", "persistentvolume", name, ok=False):
        return
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    os.chown(path, _USER, _USER)
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(path)},
        },
    }
    kubectl("apply", "--filename=-", given=json.dumps(body))
