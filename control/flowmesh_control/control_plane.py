"""The control plane as one object: recovers, leads, serves workers and users, and stops.

Made by ``fmesh up`` and by the operator, which pass in what differs between them: users, worker
tokens, secrets and the certificate.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Set
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from flowmesh_control.api.app import build_app
from flowmesh_control.api.connections import TimedRunner
from flowmesh_control.auth.tls_certificate import TlsCertificate
from flowmesh_control.auth.users import NamespaceLabels, Users, no_labels
from flowmesh_control.auth.worker_tokens import WorkerTokenVerifier
from flowmesh_control.epoch_context import EpochContext
from flowmesh_control.loop.clock import Clock, system_clock
from flowmesh_control.loop.current_event import CurrentEventMarker
from flowmesh_control.loop.gc_tuning import tune_gc
from flowmesh_control.loop.hang_watchdog import HangWatchdog
from flowmesh_control.metrics.store_latency import StoreMeter, metered
from flowmesh_control.observability.otlp import OtlpExporter, wanted
from flowmesh_control.periodic_flush import PeriodicFlush
from flowmesh_control.ports import SecretReader
from flowmesh_control.records.accounts import AccountStore
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.audit_records import AuditRecords
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.records.cost_model_snapshot import CostModelSnapshot, load_model
from flowmesh_control.records.current_keys import CurrentKeys, adopt_keys, check_keys, read_keys
from flowmesh_control.records.ended_index import EndedRunIndex
from flowmesh_control.records.epochs import SupersededError, begin_epoch, check_leads, last_epoch
from flowmesh_control.records.key_admin import KeyAdmin
from flowmesh_control.records.keys import SUSPECT_RUNS, SUSPECT_WORKERS
from flowmesh_control.records.ledger import LedgerWriter
from flowmesh_control.records.lineage_index import LineageIndex
from flowmesh_control.records.quarantine import Quarantine
from flowmesh_control.records.reference_issuer import ReferenceIssuer
from flowmesh_control.records.revocations import Revocations
from flowmesh_control.records.service_records import ServiceRecords
from flowmesh_control.records.store_format import begin_format, require_format
from flowmesh_control.records.suspects import DEATHS_MAX, read_suspects, record_last_death
from flowmesh_control.records.withheld_records import WithheldRecords
from flowmesh_control.request_log.services import RequestLogServices
from flowmesh_control.runs.cancellations import Withdrawn, find_cancelled, none_withdrawn
from flowmesh_control.runs.recovery import RecoveredState, recover
from flowmesh_control.services import ControlPlaneServices
from flowmesh_control.settings import ControlSettings
from flowmesh_control.wiring import EpochRuntime, assemble
from flowmesh_control.workers.gateway import PoolTrust, default_trust
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.errors import (
    FlowMeshError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
)
from flowmesh_core.machine.machine import Machine
from flowmesh_core.metrics.counters import MachineCounters
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.sharing.prefix_salts import PrefixSalts
from flowmesh_core.sharing.seals import RecordSeals, Seals, UncheckedSeals
from flowmesh_store.conditional_write_check import prove_conditional_writes
from flowmesh_store.keys import ACTIONS
from flowmesh_store.sealed_records import SealedRecords
from flowmesh_store.store import Store

log = logging.getLogger("flowmesh.control")

SHUTDOWN_S = 2.0
Prepare = Callable[[], Awaitable[None]]


async def nothing() -> None:
    """Prepares nothing: a laptop has no objects to read first."""


class ControlPlane:
    """One leadership from start to stop; make another object to lead again."""

    def __init__(
        self,
        store: Store,
        settings: ControlSettings,
        *,
        catalog: Catalog,
        key_ring: KeyRing,
        users: Users,
        tokens: WorkerTokenVerifier,
        secrets: SecretReader,
        certificate: TlsCertificate | None = None,
        labels: NamespaceLabels = no_labels,
        withdrawn: Withdrawn = none_withdrawn,
        trust_of: PoolTrust = default_trust,
        clock: Clock = system_clock,
        owner: str = "",
        state_folder: Path | None = None,
    ) -> None:
        """Prepares a control plane; nothing is read or written before :meth:`start`.

        Args:
            store: one bucket or directory; this control plane leads it once started.
            settings: of the control plane.
            catalog: the engine contracts (``plugins.load_catalog``).
            key_ring: seals records and signs references (``master_key.load_key_ring``).
            users: authenticates users and decides their rights.
            tokens: verifies the tokens that workers join with.
            secrets: reads secrets for attempts.
            certificate: for TLS; without one it serves plain HTTP, for the loopback only.
            labels: of namespaces, for policies that select by label.
            withdrawn: names runs that were cancelled while no control plane ran; called at start.
            trust_of: returns the trust of a pool of workers.
            clock: Unix time in seconds.
            owner: name of this leader in ``epochs/``; host and process id where empty.
            state_folder: of this machine or pod, where the current-event marker survives the
                process; None keeps it in memory.
        """
        self._tracing = OtlpExporter(os.environ) if wanted(os.environ) else None
        self._store_meter = StoreMeter()
        self._bare_store = metered(store, self._store_meter)
        self._store = self._bare_store
        self._current_keys = CurrentKeys("", {})
        self._settings = settings
        self._catalog = catalog
        self._key_ring = key_ring
        self._users = users
        self._tokens = tokens
        self._secrets = secrets
        self._certificate = certificate
        self._labels = labels
        self._withdrawn = withdrawn
        self._trust_of = trust_of
        self._clock = clock
        self._owner = owner or f"{socket.gethostname()}/{os.getpid()}"
        self._state_folder = state_folder
        self._watchdog: HangWatchdog | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._runner: web.AppRunner | None = None
        self._runtime: EpochRuntime | None = None
        self._ended = asyncio.Event()
        self._failure: BaseException | None = None
        self.url = ""

    @property
    def services(self) -> ControlPlaneServices:
        """The services of the running control plane, for its API and the operator."""
        return self._started().services

    async def adopt_keys(self) -> tuple[str, ...]:
        """Makes its key ring the store's, before :meth:`start`.

        Returns:
            The ids of the lost keys; what is sealed with them is lost.
        """
        lost = await adopt_keys(self._bare_store.records, self._key_ring)
        if lost:
            log.warning("what was sealed with master key %s is lost", ", ".join(lost))
        return lost

    async def start(
        self, host: str = "127.0.0.1", port: int = 0, prepare: Prepare = nothing
    ) -> None:
        """Recovers, then leads and serves.

        Args:
            host: address to listen on.
            port: 0 for any free one; see ``url``.
            prepare: awaited once ``services`` are there, before anybody can connect: what workers
                and users need from the first moment, such as the declared pools.

        Raises:
            StoreError: the store cannot be used; the message says why.
            LostKeyError: its records are sealed with a master key that is not in the ring.
            OSError: the address is in use.
        """
        tune_gc()
        await prove_conditional_writes(self._bare_store.records)
        await begin_format(self._bare_store.records)
        self._current_keys = await check_keys(self._bare_store.records, self._key_ring)
        self._seal_records(Seals(self._key_ring, retired=self._current_keys.retired))
        records = self._store.records
        if self._state_folder is not None:
            await record_last_death(records, self._state_folder)
        epoch = await begin_epoch(records, owner=self._owner, now_s=self._clock())
        runtime, recovered = await self._recover(epoch)
        self._runtime, services = runtime, runtime.services
        cancelled = await find_cancelled(records, recovered, self._withdrawn)
        runtime.tasks.start()
        runtime.evaluations.start()
        self._run(runtime.loop.run())
        self._watch_for_hangs(runtime)
        for revocation in runtime.revocations.events():
            await runtime.loop.post_and_wait(revocation)
        for event in recovered.submitted:
            if event.uid not in cancelled:
                services.admission.remember(recovered.specs[event.uid])
            reason = cancelled.get(event.uid, "")
            await runtime.loop.post_and_wait(msgspec.structs.replace(event, cancelled=reason))
        for uid in cancelled.keys() & recovered.waiting.keys():
            await services.repinning.cancel(uid, cancelled[uid])
        await prepare()
        await self._listen(services, host, port)
        self._run(services.gateway.watch_always())
        self._run(services.stored.run())
        self._run(services.collection.run())
        self._run(services.openai.batches.run())
        self._run(self._flush_periodically(epoch))
        self._run(services.request_log.run())
        self._run(runtime.result_index.load(partial(records.keys, f"{ACTIONS}/")))
        self._run(services.revocation.complete_interrupted())
        self._run(services.replica_planner.run())
        log.info("epoch %d on %s, %d runs recovered", epoch, self.url, len(recovered.submitted))

    async def start_reading(
        self,
        refusal: StoreError,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        checks_seals: bool = True,
    ) -> None:
        """Serves what is stored and writes nothing, not even an epoch.

        Unfinished runs wait. Requests that would write are refused, except a collection on a full
        disk, which frees space.

        Args:
            refusal: why the store cannot be written.
            host: address to listen on.
            port: 0 for any free one; see ``url``.
            checks_seals: False where the master key cannot be read: records are then shown
                unchecked, and references are not valid elsewhere.

        Raises:
            StoreError: the store cannot be read either.
            OSError: the address is in use.
        """
        tune_gc()
        await require_format(self._bare_store.records)
        if checks_seals:
            self._current_keys = await read_keys(self._bare_store.records, self._key_ring)
            self._seal_records(Seals(self._key_ring, retired=self._current_keys.retired))
        else:
            self._seal_records(UncheckedSeals())
        epoch = await last_epoch(self._store.records)
        runtime, recovered = await self._recover(epoch, refusal)
        self._runtime, services = runtime, runtime.services
        cancelled = await find_cancelled(self._store.records, recovered, self._withdrawn)
        for uid, reason in cancelled.items():
            recovered.waiting[uid] = msgspec.structs.replace(
                recovered.waiting[uid],
                message=f"it was cancelled ({reason}); its end is written when the store is "
                f"writable again: {refusal.message}",
            )
        self._run(runtime.loop.run())
        await self._listen(services, host, port)
        self._run(services.gateway.watch_always())
        log.info("read-only on %s: %s", self.url, refusal)

    def _seal_records(self, seals: RecordSeals) -> None:
        bare = self._bare_store
        records = SealedRecords(bare.records, seals, refused=self._store_meter.refuse)
        self._store = replace(bare, records=records)

    def _started(self) -> EpochRuntime:
        if self._runtime is None:
            raise FlowMeshError("the control plane is not started", remedy="await start() first")
        return self._runtime

    async def wait(self) -> None:
        """Waits until the control plane has stopped.

        Raises:
            SupersededError: another control plane leads now.
            InvariantError: a bug; durable state is intact, so a new control plane may start.
        """
        await self._ended.wait()
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """Stops serving and makes everything durable; runs continue at the next start."""
        if self._watchdog is not None:
            self._watchdog.stop()
        if self._runner is not None:
            await self.services.gateway.close()
            await self._runner.cleanup()
            self._runner = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._runtime is not None:
            await self._runtime.tasks.stop()
            await self._runtime.evaluations.stop()
            await self._runtime.evaluators.close()
            if self._failure is None and self._runtime.services.refusal is None:
                with contextlib.suppress(StoreUnavailableError, StoreFullError, SupersededError):
                    await self._books.close(self._clock())
                await self._runtime.services.request_log.close()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)
        self._ended.set()

    async def _recover(
        self, epoch: int, refusal: StoreError | None = None
    ) -> tuple[EpochRuntime, RecoveredState]:
        records, settings = self._store.records, self._settings
        ledger, archive, policies = (
            LedgerWriter(records, epoch=epoch),
            Archive(records),
            CachePolicyStore(records),
        )
        audits = AuditRecords(records, Quarantine(records), self._clock)
        await policies.load()
        serving_records = ServiceRecords(records)
        await serving_records.load()
        await audits.quarantine.load()
        withheld = WithheldRecords(self._store)
        await withheld.load()
        revocations = Revocations(records, LineageIndex(records), self._clock)
        await revocations.load()
        index = EndedRunIndex(records, epoch=epoch)
        recovered = await recover(
            records,
            ledger=ledger,
            archive=archive,
            index=index,
            catalog=self._catalog,
            deaths=await read_suspects(records, SUSPECT_RUNS),
            refusal=refusal,
        )
        await audits.load(archive)
        until_s = self._clock() + settings.machine.sync_window_s if recovered.submitted else 0.0
        counters = MachineCounters()
        counters.restore(recovered.opening.shares, self._clock())
        marker = self._marker(epoch, refusal)
        machine = Machine(
            epoch=epoch,
            catalog=self._catalog,
            # The gateway has the watchdog: it also sees messages that wait to be applied.
            settings=replace(settings.machine, watchdog_s=float("inf")),
            model=await load_model(records),
            book=recovered.opening.book,
            figures=counters,
            billed=recovered.opening.billed,
            unsettled=recovered.opening.unsettled if recovered.submitted else {},
            paid=recovered.opening.paid_by(self._clock()),
            spent=recovered.opening.spent,
            services=recovered.opening.services,
            service_days=recovered.opening.service_days,
            recovering_until_s=until_s,
            on_settle=marker.settle,
            prefix_salt=PrefixSalts(self._key_ring),
        )
        context = EpochContext(
            epoch=epoch,
            store=self._store,
            store_meter=self._store_meter,
            tracing=self._tracing,
            settings=settings,
            catalog=self._catalog,
            key_ring=self._key_ring,
            references=ReferenceIssuer(self._key_ring, policies),
            keys=KeyAdmin(self._bare_store.records, self._key_ring, self._current_keys),
            request_log=self._request_log(epoch, refusal),
            tokens=self._tokens,
            secrets=self._secrets,
            clock=self._clock,
            machine=machine,
            marker=marker,
            refused_workers=await self._refused_workers(),
            trust_of=self._trust_of,
            ledger=ledger,
            archive=archive,
            index=index,
            deleted=recovered.deleted,
            policies=policies,
            services=serving_records,
            audits=audits,
            withheld=withheld,
            revocations=revocations,
            waiting=recovered.waiting,
            uploaded=recovered.opening.uploaded,
            failed=self._fail,
            later_epoch_seen=self._later_epoch_seen,
            refusal=refusal,
        )
        runtime = assemble(context)
        self._books = PeriodicFlush(
            state=machine.state,
            uploaded=runtime.services.uploaded,
            absent=recovered.opening.absent,
            metrics=runtime.services.metrics,
            ledger=ledger,
            index=index,
            accounts=AccountStore(records, epoch=epoch),
            service_charges=runtime.services.service_charges,
            snapshot=CostModelSnapshot(records, epoch=epoch),
        )
        return runtime, recovered

    def _request_log(self, epoch: int, refusal: StoreError | None) -> RequestLogServices:
        return RequestLogServices.of(
            self._bare_store.records,
            self._store.records,
            self._key_ring,
            self._settings,
            epoch=epoch,
            clock=self._clock,
            may_write=refusal is None,
        )

    def _marker(self, epoch: int, refusal: StoreError | None) -> CurrentEventMarker:
        if self._state_folder is None or refusal is not None:
            return CurrentEventMarker.in_memory(epoch=epoch)
        return CurrentEventMarker.in_folder(self._state_folder, epoch=epoch)

    async def _refused_workers(self) -> Set[str]:
        """Returns the workers whose messages have ended the control plane too often.

        None on a laptop, whose workers belong to its only user and keep their names.
        """
        if not self._settings.objects:
            return frozenset()
        deaths = await read_suspects(self._store.records, SUSPECT_WORKERS)
        return {name for name, count in deaths.items() if count >= DEATHS_MAX}

    def _watch_for_hangs(self, runtime: EpochRuntime) -> None:
        if self._settings.hang_s:
            self._watchdog = HangWatchdog(
                turns=lambda: runtime.loop.turns,
                current=runtime.marker.current,
                hang_s=self._settings.hang_s,
            )
            self._watchdog.start()

    async def _listen(self, services: ControlPlaneServices, host: str, port: int) -> None:
        app = build_app(services, self._users, self._labels)
        self._runner = TimedRunner(
            app, unverified=services.connections, access_log=None, shutdown_timeout=SHUTDOWN_S
        )
        await self._runner.setup()
        certificate = self._certificate
        site = web.TCPSite(
            self._runner,
            host,
            port,
            ssl_context=None if certificate is None else certificate.context,
        )
        await site.start()
        if certificate is not None:
            self._run(certificate.follow())
        bound = self._runner.addresses[0]
        self.url = f"{'http' if certificate is None else 'https'}://{bound[0]}:{bound[1]}"

    async def _flush_periodically(self, epoch: int) -> None:
        settings = self._settings
        loop = asyncio.get_running_loop()
        checked, saved = loop.time(), loop.time()
        while True:
            await asyncio.sleep(settings.flush_s)
            try:
                await self._books.write(self._clock())
                if loop.time() - checked >= settings.lead_check_s:
                    checked = loop.time()
                    await check_leads(self._store.records, epoch)
                if loop.time() - saved >= settings.model_save_s:
                    saved = loop.time()
                    await self._books.save_model()
            except (StoreUnavailableError, StoreFullError) as e:
                self._started().health.record_failure(e)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._task_ended)
        self._tasks.append(task)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Stops leading on an unexpected error, which :meth:`wait` raises."""
        if self._watchdog is not None:
            self._watchdog.stop()
        if self._failure is None:
            log.error("the control plane stops: %s", error)
            self._failure = error
            self._ended.set()

    def _later_epoch_seen(self, epoch: int) -> None:
        """Checks in the store whether there is the later leader that a worker has seen."""

        async def check() -> None:
            await check_leads(self._store.records, self.services.epoch.number)

        log.warning("a worker has seen epoch %d", epoch)
        self._run(check())
