"""Fetches a model from a Hugging Face hub, by name and revision."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.imports.sources import HUB_TOKEN, hub_url
from flowmesh_worker.engines.models.safe_files import WANTED, is_wanted
from flowmesh_worker.secret_values import SecretValues


def fetch_hub(name: str, revision: str, target: Path, secrets: SecretValues) -> None:
    """Downloads the safe files of a revision.

    Args:
        name: ``org/name`` or ``org/name@revision``.
        revision: overrides the one in the name; empty for that one, or else the hub's ``main``.
        target: a directory to create.
        secrets: of this attempt: ``HF_TOKEN`` for gated models.

    Raises:
        AttemptError: the hub refuses, or may not get the token (bad input); or it cannot be
            reached (retryable).
    """
    import httpx  # noqa: PLC0415 - comes with huggingface_hub
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - only this fetch needs it
    from huggingface_hub.errors import (  # noqa: PLC0415 - as above
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    repository, _, written = name.partition("@")
    wanted = revision or written or None
    shown = f"hf://{repository}" + (f"@{wanted}" if wanted else "")
    secrets.require([HUB_TOKEN], hub_url())
    try:
        with _checked_requests(secrets):
            snapshot_download(
                repository,
                revision=wanted,
                local_dir=target,
                allow_patterns=list(WANTED),
                token=secrets.get(HUB_TOKEN) or False,
            )
    except GatedRepoError as e:
        raise bad_input(
            f"{shown} is gated and the token may not read it",
            "accept the model's terms and give a token as the secret HF_TOKEN",
        ) from e
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as e:
        raise bad_input(
            f"{shown} does not exist, or is private", "check name and revision, or give HF_TOKEN"
        ) from e
    except (LocalEntryNotFoundError, HfHubHTTPError, httpx.HTTPError, OSError) as e:
        raise AttemptError(
            Failure(
                FailureKind.ENGINE,
                f"{shown}: the hub cannot be reached",
                "check the worker's network, or give the model as ./DIR, s3:// or builtin:NAME",
                detail=f"{type(e).__name__}: {e}"[-2000:],
            )
        ) from e
    # The downloader's metadata contains times: the same model must have the same bytes.
    shutil.rmtree(target / ".cache", ignore_errors=True)


def cached_bytes(repository: str, revision: str) -> int:
    """Returns the size of a model that the hub's client has cached on this machine, else 0."""
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415 - as above
        from huggingface_hub.errors import (  # noqa: PLC0415 - as above
            HFValidationError,
            LocalEntryNotFoundError,
        )
    except ImportError:  # without a worker extra
        return 0
    try:
        folder = Path(
            snapshot_download(repository, revision=revision or None, local_files_only=True)
        )
    except (LocalEntryNotFoundError, HFValidationError):
        return 0
    files = [f for f in folder.rglob("*") if f.is_file() and is_wanted(f.name)]
    is_whole = any(f.suffix == ".safetensors" for f in files)
    return sum(f.stat().st_size for f in files) if is_whole else 0


@contextmanager
def _checked_requests(secrets: SecretValues) -> Iterator[None]:
    """Checks each request of the hub's client that carries the token, also after a redirect."""
    from huggingface_hub import (  # noqa: PLC0415 - as above
        close_session,
        get_session,
    )

    def check(request: Any) -> None:
        if "authorization" in request.headers:
            secrets.require([HUB_TOKEN], str(request.url))

    session = get_session()
    hooks = session.event_hooks
    session.event_hooks = {**hooks, "request": [*hooks.get("request", []), check]}
    try:
        yield
    finally:
        close_session()
