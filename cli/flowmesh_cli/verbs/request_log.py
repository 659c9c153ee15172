"""``fmesh request-log``: shows and verifies the log of requests."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC

import msgspec
import typer

from flowmesh_api.v1 import routes
from flowmesh_api.v1.request_log import LogEntry, RequestLogCheck, RequestLogPage
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.follow import POLL_S
from flowmesh_cli.verbs.times import read_time
from flowmesh_cli.views.formatting import count


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which entries are shown; empty texts for all.

    Attributes:
        since: a time in ISO 8601, or a duration before now.
        user: a user's name.
        namespace: a namespace.
    """

    since: str = ""
    user: str = ""
    namespace: str = ""


def show_log(wanted: LogFilter, *, follow: bool, place: Target, as_json: bool) -> None:
    """Prints entries, oldest first; with ``follow`` until the command is interrupted."""
    terminal = Terminal(as_json=as_json)
    query = {"since": _time(wanted.since), "user": wanted.user, "namespace": wanted.namespace}
    after = ""
    with query_fabric(place) as http:
        while True:
            page = http.get(routes.REQUEST_LOG, RequestLogPage, after=after, **query)
            for entry in page.entries:
                _print(terminal, entry)
            for key in page.bad:
                terminal.note(f"{key} is left out: `fmesh request-log verify` says why")
            after = page.next
            if page.is_last and not follow:
                return
            if page.is_last:
                time.sleep(POLL_S)


def verify_log(*, place: Target, as_json: bool) -> None:
    """Checks the log of a fabric, with what its control plane knows of it."""
    with query_fabric(place) as http:
        found = http.get(routes.REQUEST_LOG_CHECK, RequestLogCheck)
    _answer(found, as_json=as_json)


def verify_store(store: str, public_keys: Sequence[str], *, as_json: bool) -> None:
    """Checks the log in a store without a control plane.

    Raises:
        CliError: the store or the keys are missing.
    """
    from flowmesh_cli.local.request_log import check_store  # noqa: PLC0415 - loads the control plane

    if not store or not public_keys:
        raise CliError(
            "--store needs --public-key, and --public-key needs --store",
            ExitCode.USAGE,
            where="--store, --public-key",
            remedy="give both; `fmesh keys list` shows the public keys",
        )
    _answer(check_store(store, public_keys), as_json=as_json)


def _answer(found: RequestLogCheck, *, as_json: bool) -> None:
    terminal = Terminal(as_json=as_json)
    if as_json:
        terminal.answer(found)
    else:
        terminal.text(f"{count(found.segments, 'valid segment')}, {_entries(found.entries)}")
        if found.lost:
            terminal.text(f"{_entries(found.lost)} could not be written; the log notes the gap")
        if found.bad:
            terminal.note(f"error: {found.bad}: {found.reason}")
            terminal.note(
                "remedy: the store was changed: compare with a backup or with the lines of "
                "the logger flowmesh.request_log, and change the store's credentials"
            )
    if found.bad:
        raise typer.Exit(ExitCode.FAILED)


def _entries(number: int) -> str:
    return f"{number} entry" if number == 1 else f"{number} entries"


def _print(terminal: Terminal, entry: LogEntry) -> None:
    if terminal.as_json:
        terminal.line(msgspec.to_builtins(entry))
        return
    about, status = entry.object_ref, entry.response_status
    parts = [
        entry.stage_timestamp,
        entry.user.username or "-",
        entry.verb,
        entry.request_uri,
        "" if about is None else about.namespace,
        entry.stage if status is None else str(status.code),
        "" if status is None else status.message,
        *(f"{name.rpartition('/')[2]}={text}" for name, text in entry.annotations.items()),
    ]
    terminal.text("  ".join(part for part in parts if part))


def _time(text: str) -> str:
    """Returns a time as it is in entries; empty for an empty text.

    Raises:
        CliError: it is neither a time nor a duration.
    """
    if not text:
        return ""
    moment = read_time(text, option="--since")
    written = moment.astimezone(UTC).isoformat(timespec="microseconds")
    return written.replace("+00:00", "Z")
