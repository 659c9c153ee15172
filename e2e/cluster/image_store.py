"""containerd's image store, shared by all clusters of this machine: each image is imported once.

containerd's root outlives clusters. What a cluster adds to it (containers' layers and their
metadata) is removed at its end: the metadata is restored to its state after the last import, and
layers that are not in it are deleted. Deleting images layer by layer and importing them again took
three minutes per cluster.
"""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.images import ImageError, id_of, run
from e2e.cluster.namespaces import innermost
from e2e.cluster.paths import BINS, STOCK

ROOT = STOCK / "containerd"
_BOOKS = STOCK / "books"
_LIST = _BOOKS / "stock.json"
_SNAPSHOTS = ROOT / "io.containerd.snapshotter.v1.overlayfs" / "snapshots"
_CONTENT = ROOT / "io.containerd.content.v1.content"
_DATABASES = (
    ROOT / "io.containerd.metadata.v1.bolt" / "meta.db",
    ROOT / "io.containerd.snapshotter.v1.overlayfs" / "metadata.db",
)
_KEPT = {_CONTENT.name, *(database.parent.name for database in _DATABASES)}
_WITHIN_S = 300.0


def keep(archives: Sequence[Path]) -> None:
    """Imports images that are missing or have changed; no cluster may run.

    Raises:
        ImageError: containerd does not start, or refuses an image.
    """
    restore()
    missing = [archive for archive in archives if images().get(archive.name) != id_of(archive)]
    if not missing:
        return
    held = images()
    with _containerd() as address:
        for archive in missing:
            import_image(address, archive)
            held[archive.name] = id_of(archive)
        _drop_replaced(address)
    _save(held)


def images() -> dict[str, str]:
    """Returns the imported image of each archive, by the archive's name."""
    if not _LIST.is_file():
        return {}
    found: dict[str, str] = json.loads(_LIST.read_text())["images"]
    return found


def restore() -> None:
    """Removes everything added since the last import; no cluster may run."""
    if not _LIST.is_file():
        shutil.rmtree(ROOT, ignore_errors=True)
        return
    known = set(json.loads(_LIST.read_text())["snapshots"])
    others = [entry for entry in ROOT.iterdir() if entry.name not in _KEPT]
    layers = [entry for entry in _SNAPSHOTS.iterdir() if entry.name not in known]
    for entry in (*others, *layers, *(_CONTENT / "ingest").glob("*")):
        shutil.rmtree(entry)
    for database in _DATABASES:
        shutil.copy(_BOOKS / database.name, database)


def import_image(address: Path, archive: Path) -> None:
    """Imports an image into a containerd.

    Raises:
        ImageError: containerd refuses it.
    """
    run([*_ctr(address), "-n", "k8s.io", "images", "import", str(archive)])


def _save(held: dict[str, str]) -> None:
    _BOOKS.mkdir(parents=True, exist_ok=True)
    _LIST.unlink(missing_ok=True)  # written last: without it everything is imported again
    for database in _DATABASES:
        shutil.copy(database, _BOOKS / database.name)
    layers = sorted(entry.name for entry in _SNAPSHOTS.iterdir())
    _LIST.write_text(json.dumps({"images": held, "snapshots": layers}))


def _drop_replaced(address: Path) -> None:
    """Makes containerd remove at once what no image needs."""
    ctr = [*_ctr(address), "-n", "k8s.io", "images"]
    some = run([*ctr, "list", "--quiet"]).split()[0]
    run([*ctr, "tag", "--force", some, "localhost/none:1"])
    run([*ctr, "remove", "--sync", "localhost/none:1"])


@contextmanager
def _containerd() -> Iterator[Path]:
    """Runs a containerd without pods in its own namespaces; yields its address."""
    folder = STOCK / "running"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    address = folder / "containerd.sock"
    config = folder / "containerd.toml"
    config.write_text(
        f"""version = 3
root = "{ROOT}"
state = "{folder / "state"}"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{address}"
"""
    )
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with (folder / "containerd.log").open("wb") as log:
        process = subprocess.Popen(
            [*words, str(BINS / "containerd"), "--config", str(config)], stdout=log, stderr=log
        )
    try:
        _wait(process, address)
        yield address
    finally:
        subprocess.run(["kill", f"-{signal.SIGTERM.value}", str(innermost(process.pid))],
                       check=False)  # fmt: skip
        process.wait(_WITHIN_S)
        shutil.rmtree(folder, ignore_errors=True)


def _wait(process: "subprocess.Popen[bytes]", address: Path) -> None:
    end = time.monotonic() + _WITHIN_S
    asked = [*_ctr(address), "version"]
    while subprocess.run(asked, capture_output=True, check=False).returncode:
        if process.poll() is not None or time.monotonic() > end:
            said = (address.parent / "containerd.log").read_text()[-2000:]
            raise ImageError(f"containerd did not start in {_WITHIN_S:.0f} s:\n{said}")
        time.sleep(0.05)


def _ctr(address: Path) -> list[str]:
    return [str(BINS / "ctr"), "--address", str(address)]
