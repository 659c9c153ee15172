"""``fmesh cache``: statistics, garbage collection and purging of cached results."""

import contextlib
import stat
from pathlib import Path

from flowmesh_api.v1.audit import QuarantineEntry
from flowmesh_api.v1.fabric import CacheStats, CollectionReport, FabricStatus, PurgeReport
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.state_dir import state_dir
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.nearness import nearest
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views.formatting import count, size, usd
from flowmesh_core.sharing.scopes import namespace_scope


def show_stats(*, place: Target, as_json: bool) -> None:
    """Shows how much is cached, and what it has saved."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        stats = http.get("/v1/cache/stats", CacheStats)
        fabric = http.get("/v1/fabric", FabricStatus)
        quarantine = http.get("/v1/quarantine", list[QuarantineEntry])
    workers = state_dir(place.state_dir).path / "workers"
    workers_bytes = 0 if place.is_cluster else _bytes_in(workers)
    if as_json:
        terminal.answer(
            {
                "cache": stats,
                "fabric": fabric,
                "quarantine": quarantine,
                "workers_bytes": workers_bytes,
            }
        )
        return
    terminal.text(f"{count(stats.blobs, 'blob')}, {size(stats.blob_bytes)}")
    if workers_bytes:
        terminal.text(f"workers' caches and logs: {size(workers_bytes)} in {workers}")
    rows = [[s.scope, str(s.results), size(s.size_bytes)] for s in stats.scopes]
    terminal.table(["scope", "results", "size"], rows, right="results size", cut="scope")
    hits = fabric.hits_published + fabric.hits_in_flight + fabric.hits_step_level
    terminal.text(
        f"so far {count(hits, 'hit')}, {fabric.executed} executed actions, "
        f"saved {usd(fabric.saved_nanousd)}"
    )
    if quarantine:
        classes = count(len(quarantine), "signature class")
        terminal.text(f"in quarantine: {classes} (fmesh audit --list)")


def _bytes_in(folder: Path) -> int:
    """Returns the size of a folder's files, each once; those that vanish meanwhile are left out."""
    sizes: dict[tuple[int, int], int] = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            found = path.lstat()
            if stat.S_ISREG(found.st_mode):
                sizes[found.st_dev, found.st_ino] = found.st_size
    return sum(sizes.values())


def collect_garbage(*, dry_run: bool, place: Target, as_json: bool) -> None:
    """Deletes expired results and unreferenced blobs, or shows which."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        found = http.ask("POST", "/v1/cache/gc", CollectionReport, query={"dry_run": dry_run})
    if as_json:
        terminal.answer(found)
        return
    would = "would delete" if dry_run else "deleted"
    blobs, results = count(found.blobs, "blob"), count(found.expired_results, "expired result")
    terminal.text(
        f"{would} {count(found.deleted, 'blob')} ({size(found.deleted_bytes)}) and {results}; "
        f"of {blobs}, {found.live} are needed and {found.young} are too young to delete"
    )
    if found.evicted_results:
        evicted = count(found.evicted_results, "result")
        terminal.text(
            f"{would} {evicted} that were used least recently: the store is above its bound"
        )
    if found.expired_runs:
        terminal.text(f"{would} the records of {count(found.expired_runs, 'old run')}")
    for text in found.unreadable_runs:
        terminal.note(text)
    if found.expired_log_segments:
        segments = count(found.expired_log_segments, "expired segment")
        terminal.text(f"{would} {segments} of the request log")


def purge_results(*, namespace: str, engine: str, yes: bool, place: Target, as_json: bool) -> None:
    """Purges results of one tenant or all, and of one engine or all."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        known = [s.scope for s in http.get("/v1/cache/stats", CacheStats).scopes]
        scopes = _scopes_to_purge(known, namespace)
        what = f"results of {engine or 'all engines'} in {', '.join(scopes) or 'no scope'}"
        if not yes:
            terminal.confirm(f"purge the {what}?", declined="nothing was purged")
        deleted = 0
        for scope in scopes:
            document = {"scope": scope, "engine": engine}
            deleted += http.ask("POST", "/v1/cache/purge", PurgeReport, document=document).deleted
    if as_json:
        terminal.answer({"deleted": deleted})
    else:
        terminal.text(f"purged {count(deleted, 'result')}; `fmesh cache gc` frees the space")


def _scopes_to_purge(known: list[str], namespace: str) -> list[str]:
    if not namespace:
        return known
    scope = namespace_scope(namespace)
    for name in (scope, namespace):
        if name in known:
            return [name]
    raise CliError(
        f"nothing is cached for {namespace!r}{nearest(scope, known)}",
        ExitCode.NOT_FOUND,
        remedy=f"cached scopes: {', '.join(known) or 'none'}",
    )
