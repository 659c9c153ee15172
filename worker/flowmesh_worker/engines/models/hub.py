"""Fetches a model from a Hugging Face hub, by name and revision."""

import shutil
from pathlib import Path

from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.models.safe_files import WANTED


def fetch_hub(name: str, revision: str, target: Path, token: str | None) -> None:
    """Downloads the safe files of a revision.

    Args:
        name: ``org/name`` or ``org/name@revision``.
        revision: overrides the one in the name; empty for that one, or else the hub's ``main``.
        target: a directory to create.
        token: the user's token for gated models, or None.

    Raises:
        AttemptError: the hub refuses (bad input), or cannot be reached (retryable).
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
    try:
        snapshot_download(
            repository,
            revision=wanted,
            local_dir=target,
            allow_patterns=list(WANTED),
            token=token or False,
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
