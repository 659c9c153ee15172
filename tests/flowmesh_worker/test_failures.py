"""What kind of failure an exception of an engine is."""

import errno
import os

import msgspec
import pytest
from safetensors import SafetensorError

from flowmesh_core.errors import IdentityError, StoreError
from flowmesh_worker.failures import FREE_SPACE, engine_failure, store_failure

NO_TEXT = "\udcff"
"""What Python makes of a file's name that is not UTF-8."""


def test_a_full_disk_is_a_store_failure_whichever_component_writes() -> None:
    words = os.strerror(errno.ENOSPC)
    # As safetensors says it; tests/flowmesh_cli/test_disk_full_of_models.py has it say so.
    written = SafetensorError(f"Error while serializing: I/O error: {words} (os error 28)")
    for error in (written, OSError(errno.ENOSPC, words)):
        failure = engine_failure(error, "model.merge")
        assert failure.kind == "store"
        assert "no space is left for outputs" in failure.message
        assert failure.remedy == FREE_SPACE


def test_another_operating_system_error_is_an_engine_failure() -> None:
    gone = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "No space left on device")
    assert engine_failure(gone, "model.merge").kind == "engine"


@pytest.mark.parametrize(
    "error",
    [
        OSError(f"no such file: {NO_TEXT}"),
        StoreError(f"cannot read {NO_TEXT}", remedy=f"rename {NO_TEXT}"),
        IdentityError(f"cannot use {NO_TEXT}", remedy=f"rename {NO_TEXT}"),
        ValueError(NO_TEXT),
    ],
)
def test_a_failure_whose_text_is_not_unicode_can_be_sent(error: Exception) -> None:
    for failure in (store_failure(error, "an input could not be read"), engine_failure(error, "x")):
        assert msgspec.msgpack.encode(failure)
        assert "\\udcff" in failure.message
