"""Reads times as users write them on the command line."""

import time
from datetime import UTC, datetime

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_core.spec.quantities import seconds

_TIME = "a time: expected 2026-01-31T12:00:00Z, or 1h for an hour ago"
DAY = "a day: expected 2026-01-31, or 7d for a week ago"


def read_time(text: str, *, option: str, expected: str = _TIME) -> datetime:
    """Returns a time given in ISO 8601, or as a duration before now.

    Args:
        text: as the user wrote it.
        option: that has it, for the error.
        expected: what it should be, for the error.

    Raises:
        CliError: it is neither a time nor a duration.
    """
    try:
        return datetime.fromtimestamp(time.time() - seconds(text), UTC)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as e:
        raise CliError(
            f"{text!r} is not {expected}",
            ExitCode.USAGE,
            where=option,
        ) from e
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
