"""A model or an adapter that a run made."""

from contextlib import closing
from pathlib import Path

from flowmesh_sdk.errors import file_errors
from flowmesh_sdk.http.client import ApiConnection


class ModelFolder:
    """A folder in the store.

    Attributes:
        kind: ``model`` or ``adapter``.
    """

    def __init__(self, http: ApiConnection, path: str, *, kind: str) -> None:
        """Reads nothing yet."""
        self._http, self._path = http, path
        self.kind = kind

    def download(self, target: str | Path) -> Path:
        """Writes its files into a folder, which is created; returns that folder.

        Raises:
            FileError: the folder cannot be written.
            FlowMeshError: the content is gone or incomplete, or the fabric does not answer.
        """
        import tarfile  # noqa: PLC0415 - see local_fabric
        import tempfile  # noqa: PLC0415

        folder = Path(target).expanduser()
        with file_errors(folder, "name a folder that this user may write, with space for it"):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                packed = Path(scratch) / "content.tar"
                with closing(self._http.clone()) as separate:
                    separate.download(self._path, packed)
                with tarfile.open(packed) as tar:
                    # Refuses links and paths that lead out of the folder.
                    tar.extractall(folder, filter="data")
        return folder

    def __repr__(self) -> str:
        """Shows its kind."""
        return f"<ModelFolder: {self.kind}>"
