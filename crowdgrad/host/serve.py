"""A host at work: listen, train, watch, end well.

Everything that runs beside each other is started here: the frames' listener, the HTTP API, the
matchmaker's presence, worker 0. Every `TICK_S` the training is asked what time has brought.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import random
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from crowdgrad.domain.job import JobState, Member
from crowdgrad.domain.matching import Offer
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import ChildDied, CrowdgradError, JobFileError, one_line
from crowdgrad.host.api import create_app
from crowdgrad.host.evaluation import Scores
from crowdgrad.host.folder import RunFolder
from crowdgrad.host.job import Prepared, describe
from crowdgrad.host.results import write_results
from crowdgrad.host.server import Server
from crowdgrad.host.status import Status, finite, point, take_status
from crowdgrad.host.training import Training
from crowdgrad.host.workers import Workers
from crowdgrad.net.http import HttpServer
from crowdgrad.net.identity import id_of, load_or_make
from crowdgrad.net.matchmaker import HostPresence, publish
from crowdgrad.net.ports import bind, reachable
from crowdgrad.net.transport import tcp
from crowdgrad.numerics.vectors import Vector
from crowdgrad.settings import Settings

logger = logging.getLogger(__name__)

TICK_S = 0.1
METRICS_EVERY_S = 1.0
MAX_HTTP_MESSAGE = 64 << 10
ROOM_BYTES = 1 << 20
"""Room on the disk kept for the results, besides that for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where and how a host runs; what it trains is in `Prepared`."""

    runs: Path
    host: str = "127.0.0.1"
    port: int = 0
    advertise: str | None = None
    """The address told to others, where it is not the one we listen on."""
    http_port: int = 0
    matchmaker: str | None = None
    helpers: int = 0
    """Volunteer processes started on this machine besides worker 0."""
    paces_ms: tuple[float, ...] = ()
    """How long worker 0 and each helper pause after a batch: slow machines, played."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """Where a running host is found."""

    address: str
    url: str
    folder: Path
    code: str | None
    key: str
    """Fingerprint of the host's key: what volunteers see and can compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    folder: Path
    status: Status
    parameters: Vector
    history: tuple[Scores, ...]

    @property
    def state(self) -> JobState:
        return self.status.state


class Run:
    """One run of one job."""

    def __init__(self, prepared: Prepared, options: Options, settings: Settings) -> None:
        self._prepared = prepared
        self._options = options
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._key = load_or_make(settings.home)
        self.training = Training(
            job=prepared.job,
            spec=prepared.program.spec,
            manifest=prepared.manifest,
            initial=prepared.initial,
            recipe=prepared.recipe,
            lease_s=settings.lease_s,
            wait_for=prepared.minimum if prepared.start == "all" else 0,
        )
        room = ROOM_BYTES + 4 * prepared.initial.nbytes
        self.folder = RunFolder(options.runs / prepared.job.id, reserve_bytes=room)
        self._token = secrets.token_hex(16)
        self._presence: HostPresence | None = None
        self._metrics_at = 0.0
        self._published_state: JobState = "waiting"
        self._told_failure = False
        self._told_setbacks = 0

    def status(self) -> Status:
        return take_status(self.training, self._loop.time())

    async def to_the_end(
        self,
        stop: asyncio.Event,
        *,
        started: Callable[[Here], None] = lambda here: None,
        watch: Callable[[Status], None] = lambda status: None,
    ) -> Outcome:
        """Train until it is over or `stop` is set; the run folder is complete afterwards.

        Also when something breaks, `started` and `watch` included: then it is raised at the end.
        """
        trouble: Exception | None = None
        async with self._running(stop) as (here, server, workers):
            try:
                started(here)
                self._write_job("running")
                await self._train(stop, workers, watch)
            except Exception as error:
                trouble = error
                self.training.fail(one_line(f"{type(error).__name__}: {error}"))
            status = self.status()
            await server.farewell(status.reason)
        outcome = Outcome(
            folder=self.folder.path,
            status=status,
            parameters=await self.training.result(),
            history=tuple(self.training.course.history),
        )
        await asyncio.to_thread(
            write_results, self.folder, self._prepared, status, outcome.parameters, outcome.history
        )
        if trouble is not None:
            raise trouble
        watch(status)
        return outcome

    async def _train(
        self, stop: asyncio.Event, workers: Workers, watch: Callable[[Status], None]
    ) -> None:
        while self.training.course.phase != "over":
            now = self._loop.time()
            if stop.is_set():
                self.training.stop("stopped by its host")
            self._tend(workers, now)
            for scores in await self.training.tick(now):
                self._note_scores(scores)
            status = self.status()
            self._note(now, status)
            watch(status)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await stop.wait()

    @contextlib.asynccontextmanager
    async def _running(self, stop: asyncio.Event) -> AsyncIterator[tuple[Here, Server, Workers]]:
        """Listener, API, matchmaker and workers, all ended in the opposite order.

        Raises KeyboardInterrupt when stopped before all of them are there.
        """
        async with contextlib.AsyncExitStack() as stack:
            opening = asyncio.create_task(self._open(stack))
            stopping = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not opening.done():
                    raise KeyboardInterrupt
                opened = opening.result()
            except BaseException:
                self.folder.discard()
                raise
            finally:
                stopping.cancel()
                opening.cancel()
                await asyncio.gather(opening, return_exceptions=True)
            yield opened

    async def _open(self, stack: contextlib.AsyncExitStack) -> tuple[Here, Server, Workers]:
        options = self._options
        server = self._server()
        listener = await tcp.listen(options.host, options.port, server.serve)
        stack.push_async_callback(listener.close)
        api = HttpServer(
            create_app(self.status),
            bind("127.0.0.1", options.http_port, "--http-port"),
            max_message_bytes=MAX_HTTP_MESSAGE,
        )
        await api.start()
        stack.push_async_callback(api.stop)
        host, port = listener.address
        address = f"{options.advertise or reachable(host)}:{port}"
        if options.matchmaker is not None:
            self._presence = await self._publish(options.matchmaker, address)
            stack.push_async_callback(self._withdraw)
        workers = Workers(
            listener.address,
            token=self._token,
            logs=self.folder.path / "logs",
            home=self._settings.home,
            paces_ms=options.paces_ms,
        )
        stack.push_async_callback(asyncio.to_thread, workers.end)
        workers.start_helpers(options.helpers)
        here = Here(
            address=address,
            url=f"http://{api.address}",
            folder=self.folder.path,
            code=self._presence.code if self._presence else None,
            key=self._key.id,
        )
        return here, server, workers

    def _server(self) -> Server:
        return Server(
            self.training,
            self._prepared.blobs,
            token=self._token,
            max_volunteers=self._prepared.maximum,
            heartbeat_s=self._settings.heartbeat_s,
            silence_s=self._settings.silence_s,
            clock=self._loop.time,
            place_of=self._place_of,
            key=self._key,
            name=self._settings.name,
        )

    async def _publish(self, url: str, address: str) -> HostPresence:
        job = self._prepared.job
        key = self._key
        try:
            offer = Offer(
                id=job.id,
                title=job.title,
                cause=job.cause,
                address=address,
                key=key.id,
                minimum=self._prepared.minimum,
                maximum=self._prepared.maximum,
                hyperparameters=job.hyperparameters,
            )
        except ValueError as error:
            raise JobFileError(f"The job cannot be published: {error}.") from None
        own = Member(position=0, id=id_of(key.public + b"worker 0"), name="the host's own worker")
        return await publish(url, offer, worker=own, random01=random.random)

    async def _withdraw(self) -> None:
        assert self._presence is not None
        self._tell_matchmaker(self.status())
        await self._presence.close()

    def _place_of(self, who: VolunteerId) -> int | None:
        members = self._presence.roster.members if self._presence else ()
        return next((member.position for member in members if member.id == who), None)

    # -- while it runs ------------------------------------------------------------------------

    def _tend(self, workers: Workers, now: float) -> None:
        try:
            said = workers.tend(now)
        except ChildDied as error:
            self.training.fail(error.message)
            return
        if said is not None:
            logger.warning("%s", said)

    def _note(self, now: float, status: Status) -> None:
        self._tell_matchmaker(status)
        if status.setbacks > self._told_setbacks:
            self._told_setbacks = status.setbacks
            logger.warning("%s", status.notice)
            self.folder.add_metrics(
                {"kind": "setback", "elapsed_s": status.elapsed_s, "notice": status.notice}
            )
        if now - self._metrics_at < METRICS_EVERY_S:
            return
        self._metrics_at = now
        line = dataclasses.asdict(status)
        kept = ("elapsed_s", "epochs_done", "updates", "samples", "samples_per_s", "updates_per_s",
                "mean_staleness", "train_loss", "refused", "ignored", "setbacks",
                "learning_rate")  # fmt: skip
        here = sum(member.connected for member in status.members)
        numbers = {name: finite(line[name]) for name in kept}
        self.folder.add_metrics({"kind": "training", **numbers, "volunteers": here})

    def _note_scores(self, scores: Scores) -> None:
        found = point(scores)
        assert found is not None
        line = finite({"kind": scores.kind, **dataclasses.asdict(found)})
        self.folder.add_metrics(line)  # type: ignore[arg-type]

    def _tell_matchmaker(self, status: Status) -> None:
        if self._presence is None:
            return
        if status.state != self._published_state:
            self._published_state = status.state
            self._presence.set_state(status.state)
        if self._presence.failure is not None and not self._told_failure:
            self._told_failure = True
            logger.warning("the matchmaker: %s", self._presence.failure)

    def _write_job(self, state: str) -> None:
        with contextlib.suppress(CrowdgradError):  # a full disk is said again at the end
            self.folder.write_json("job.json", {**describe(self._prepared), "state": state})
