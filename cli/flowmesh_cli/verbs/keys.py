"""``fmesh keys``: the master keys of a state folder, and what to change on a cluster."""

from pathlib import Path

from flowmesh_api.v1 import routes
from flowmesh_api.v1.keys import MasterKeys, ResealReport, RetireBody, RetireReport
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.owner import current
from flowmesh_cli.connection.state_dir import state_dir
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views.formatting import count

_FILE = "master.key"
_RESTART = "a running control plane uses it from its next start on"


def show_keys(*, place: Target, as_json: bool) -> None:
    """Shows the keys' ids and how many records each seals."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        found = http.get(routes.KEYS, MasterKeys)
    if as_json:
        terminal.answer(found)
        return
    public = {one.key_id: one.key for one in reversed(found.public_keys)}
    named = dict.fromkeys((*found.ids, *found.retired, *sorted({*found.records, *public})))
    rows = [[i, _state(found, i), str(found.records.get(i, 0)), public.get(i, "-")] for i in named]
    headings = ["key", "state", "records", "public key"]
    terminal.table(headings, rows, right="records", whole="public key")
    if found.unsealed:
        terminal.text(f"{count(found.unsealed, 'record')} without a seal, which are not trusted")


def _state(keys: MasterKeys, key_id: str) -> str:
    if key_id == keys.newest:
        return "newest"
    if key_id in keys.ids:
        return "verifies"
    return "retired" if key_id in keys.retired else "missing"


def rotate_keys(file: Path | None, *, place: Target, as_json: bool) -> None:
    """Adds a key to a file; for a cluster prints how to change the Secret."""
    from flowmesh_cli.local.keys import add_key  # noqa: PLC0415 - loads the control plane

    terminal = Terminal(as_json=as_json)
    if place.is_cluster and file is None:
        _show_secret_steps(terminal, place, "fmesh keys rotate --file master.key")
        return
    key_id = add_key(file or state_dir(place.state_dir).path / _FILE)
    if as_json:
        terminal.answer({"newest": key_id})
        return
    terminal.text(f"master key {key_id} is the newest; {_RESTART}")


def reseal_records(*, place: Target, as_json: bool) -> None:
    """Seals all records with the newest key."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        done = http.ask("POST", routes.KEYS_RESEAL, ResealReport)
    if as_json:
        terminal.answer(done)
        return
    left = f"; {count(done.left, 'record')} could not be sealed" if done.left else ""
    terminal.text(f"sealed {count(done.resealed, 'record')} with master key {done.newest}{left}")


def retire_key(key_id: str, *, lose_results: bool, place: Target, as_json: bool) -> None:
    """Retires a key and removes it from the folder's file."""
    from flowmesh_cli.local.keys import remove_key  # noqa: PLC0415 - loads the control plane

    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        body = RetireBody(key_id, lose_results)
        done = http.ask("POST", routes.KEYS_RETIRE, RetireReport, document=body)
    if not place.is_cluster:
        remove_key(state_dir(place.state_dir).path, key_id)
    if as_json:
        terminal.answer(done)
        return
    terminal.text(f"master key {key_id} is retired; {count(done.lost, 'record')} lost")
    if place.is_cluster:
        _show_secret_steps(terminal, place, f"sed -i '/^{key_id}:/d' master.key")


def adopt_keys(*, lose_results: bool, place: Target, as_json: bool) -> None:
    """Goes on without a lost key.

    Raises:
        CliError: it was not confirmed, or a fabric is running.
    """
    from flowmesh_cli.local.keys import adopt_folder  # noqa: PLC0415 - loads the control plane

    terminal = Terminal(as_json=as_json)
    if not lose_results:
        raise CliError(
            "results and runs that are sealed with a lost master key cannot be read any more",
            ExitCode.USAGE,
            remedy="restore the key; or accept the loss with --lose-results",
        )
    if place.is_cluster:
        terminal.text("set masterKey.loseResults=true in the chart's values for one start")
        return
    state = state_dir(place.state_dir)
    if current(state) is not None:
        raise CliError(
            "a fabric is running on this folder",
            ExitCode.USAGE,
            where=str(state.path),
            remedy="end it first",
        )
    lost = adopt_folder(state.path)
    if as_json:
        terminal.answer({"lost": lost})
        return
    terminal.text(f"lost master keys: {', '.join(lost) or 'none'}")


def _show_secret_steps(terminal: Terminal, place: Target, change: str) -> None:
    """Prints the commands that change the Secret of a cluster."""
    where = f"kubectl -n {place.system_namespace}"
    secret = "secret flowmesh-master-key"
    patch = '{"data":{"master-key":"\'$(base64 -w0 master.key)\'"}}'
    for line in (
        "umask 077",
        f"{where} get {secret} -o jsonpath='{{.data.master-key}}' | base64 -d > master.key",
        change,
        f"{where} patch {secret} -p '{patch}'",
        f"{where} rollout restart deployment"
        " -l 'app.kubernetes.io/name=flowmesh,app.kubernetes.io/component in (operator,blobs)'",
        "shred -u master.key",
    ):
        terminal.text(line)
