"""A host at work: listen, train, watch, end well.

Everything that runs beside each other is started here: the frames' listener, the HTTP API, the
matchmaker's presence, worker 0, the keeper of checkpoints. Every `TICK_S` the training is asked
what time has brought. A run that goes on from a checkpoint is the same with a `Found` in hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import ChildDied, CrowdgradError, RunBusy, one_line
from crowdgrad.files import disk_errors
from crowdgrad.host.asking import Asking
from crowdgrad.host.blobs import Blobs
from crowdgrad.host.door import Door, anyone, chosen
from crowdgrad.host.folder import RESUME, RunFolder
from crowdgrad.host.front import Front
from crowdgrad.host.growth import Finder, Grown, Growth
from crowdgrad.host.job import Prepared, describe
from crowdgrad.host.keeping import resume
from crowdgrad.host.keeping.keeper import Keeper
from crowdgrad.host.keeping.resume import GoingOn, Serving
from crowdgrad.host.keeping.run_files import RunFiles
from crowdgrad.host.listing import Listing, gifts
from crowdgrad.host.looking import looking_at
from crowdgrad.host.options import Here, Options, Outcome
from crowdgrad.host.remote import control_file
from crowdgrad.host.remote.api import create_app
from crowdgrad.host.remote.control import STOPPED, Control
from crowdgrad.host.remote.listening import (
    MAX_HTTP_MESSAGE,
    PublicPage,
    open_page,
    socket_at,
)
from crowdgrad.host.results import write_results
from crowdgrad.host.server import Server
from crowdgrad.host.servers.fleet import Fleet
from crowdgrad.host.servers.hiring import Hired
from crowdgrad.host.spreading import Spread
from crowdgrad.host.telling import logbook
from crowdgrad.host.telling.history import Curves, History
from crowdgrad.host.telling.job_page import Entry, JobPage, job_page
from crowdgrad.host.telling.latest import Latest
from crowdgrad.host.telling.metrics import MetricsLog
from crowdgrad.host.telling.recent import Recent
from crowdgrad.host.telling.status import Status
from crowdgrad.host.training import Training
from crowdgrad.host.ways import Wishes
from crowdgrad.host.workers import Workers, helpers_ids
from crowdgrad.net.dialling import Dialler
from crowdgrad.net.http import HttpServer
from crowdgrad.net.identity import load_or_make
from crowdgrad.net.local_api import Once
from crowdgrad.net.transport import secure
from crowdgrad.settings import Settings

logger = logging.getLogger(__name__)

TICK_S = 0.1
ROOM_BYTES = 1 << 20
"""Room on the disk kept for the results, besides that for the model."""


class Run:
    """One run of one job, from its beginning or from where an earlier host stopped."""

    def __init__(
        self,
        prepared: Prepared,
        options: Options,
        settings: Settings,
        going_on: GoingOn | None = None,
    ) -> None:
        """`prepared.initial` is the run's own from now on."""
        self._prepared = prepared
        self._going_on = going_on
        self._admit = chosen(options.admit or prepared.appeal.admit, options.matchmaker)
        self._options = options
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._key = load_or_make(settings.home)
        self._helpers = helpers_ids(options.helpers, self._seed)
        self._hired = self._hire() if options.servers.count else None
        self.training = Training(
            job=prepared.job,
            spec=prepared.program.spec,
            manifest=prepared.manifest,
            initial=prepared.initial,
            recipe=prepared.recipe,
            lease_s=settings.lease_s,
            wait_for=prepared.minimum if prepared.start == "all" and going_on is None else 0,
            metrics_bytes=lambda: self.folder.metrics_bytes,
            claim=self._claim,
            hold=self._hired.hold if self._hired is not None else None,
            looking=looking_at(prepared),
        )
        room = ROOM_BYTES + 4 * prepared.initial.nbytes
        path = options.runs / prepared.job.id if going_on is None else going_on.folder
        self.folder = RunFolder(path, reserve_bytes=room, again=going_on is not None)
        self._entrance = self.folder.path / control_file.NAME
        kept = self.folder.path / RESUME
        self._files = RunFiles(kept, prepared, there=bool(going_on and not going_on.changed))
        if going_on is not None:
            self._check_newest(going_on)
        self._keeper = Keeper(self.training, self._files, every_s=settings.checkpoint_s)
        self._growth = self._looks_for_more()
        self._talk: Server | None = None
        self._spread: Spread | None = None
        self._token = secrets.token_hex(16)
        wishes = Wishes(
            host=options.host,
            port=options.port,
            advertise=options.advertise,
            matchmaker=options.matchmaker,
            relays=options.relays,
            router=options.router,
        )
        self._front = Front(wishes, prepared, settings, self._key, any_port=options.any_port)
        self._history, self._recent = History(), Recent()
        self._log = MetricsLog(self._add_metrics, self.folder.path / "tensorboard", wall=time.time)
        self._told_setbacks, self._told_warning = 0, ""
        self._entry: Entry | None = None
        """What anybody may know of the job; None: it is not open yet."""
        self._page_once = Once(self._page_of)
        self._latest = Latest(
            self.training, self._keeper.health, self._loop.time, lambda: self._spread
        )

    def _looks_for_more(self) -> Growth | None:
        """Where the data may grow: whoever looks for what is added."""
        prepared = self._prepared
        if not prepared.job.growing or prepared.source is None:
            return None
        finder = Finder(prepared, prepared.source, self._files.grow, self._key)
        return Growth(finder, self._grow, self._warn_of_data)

    def _add_metrics(self, line: dict[str, object]) -> None:
        self.folder.add_metrics(line)
        self._history.add(line)

    def _curves(self, points: int) -> Curves:
        return self._history.curves(self.training.course.history, points)

    def _page(self) -> JobPage | None:
        if self._entry is None:
            return None
        return self._page_once(self._latest.status())

    def _page_of(self, status: Status) -> JobPage:
        assert self._entry is not None
        return job_page(self._entry, status, self.training.course.history)

    def _warn_of_data(self, words: str) -> None:
        self.training.state.data_warning = words

    def _grow(self, grown: Grown) -> None:
        """Train on what was added, too: it is on the disk already. All of it in one step."""
        data, prepared = grown.folder, self._prepared
        assert isinstance(prepared.blobs, Blobs)
        assert self._talk is not None
        prepared.blobs.grow(data.name, data.raw, data.manifest, grown.first)
        self.training.grow(data.manifest, data.name)
        self._talk.grew(grown.seal)
        if self._spread is not None:
            self._spread.grew(data.manifest)
        self._prepared = replace(
            prepared,
            job=self.training.job,
            manifest=data.manifest,
            began_with=prepared.began_with or prepared.job.manifest,
        )

    def _seed(self, name: str) -> str:
        """What the key of a worker with this name is made from, in every life of the run."""
        return self._key.derive(f"{self._prepared.job.id} {name}").hex()

    def _hire(self) -> Hired:
        prepared, options = self._prepared, self._options
        return Hired(
            options.servers,
            prepared.job,
            prepared.program.spec,
            prepared.recipe,
            host=options.host,
        )

    def _check_newest(self, going_on: GoingOn) -> None:
        """That no host worked on the run between our look and our lock. Raises RunBusy."""
        with disk_errors(self.folder.path):
            newest = self._files.newest()
        if newest != going_on.newest:
            self.folder.close()
            raise RunBusy(
                f"Another host went on with {self.folder.path} a moment ago.",
                advice="`crowdgrad runs` shows how it stands; then try again.",
            )

    def status(self) -> Status:
        return self._latest.take()

    async def _claim(self) -> int:
        """An incarnation that no host of this job has had, on the disk before anybody hears of it.

        A disk that cannot even keep a number must not stop the training: then, should we crash
        before it can, two incarnations may have the same number.
        """
        try:
            return await asyncio.to_thread(self._files.claim)
        except OSError as error:
            logger.error("the disk cannot keep the number of this incarnation: %s", error.strerror)
            return self.training.parameters.version.incarnation + 1

    async def _begin(self) -> None:
        """Be the next host of this run, before anybody can reach us."""
        before, self._going_on = self._going_on, None
        if before is None:
            return
        with disk_errors(self.folder.path):
            incarnation = await asyncio.to_thread(self._files.claim)
        found = before.take()
        best = found.best.vector if found.best is not None else None
        await self.training.resume(
            self._loop.time(), found.checkpoint, incarnation, best, anew=before.anew
        )
        self.folder.rewind_metrics(found.checkpoint.metrics_bytes)
        await asyncio.to_thread(self._history.read, self.folder.path / "metrics.jsonl")
        for skipped in before.skipped:
            logger.info("a checkpoint could not be used: %s", skipped)
        logger.info("goes on from version %s", before.version)
        if before.anew:  # before job.json says that it runs: else a crash would find its old end
            await self._keeper.write_now(self._loop.time())

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
        with logbook.install(self.folder.path / "logs" / "host.jsonl", self._recent):
            return await self._live(stop, started, watch)

    async def _live(
        self,
        stop: asyncio.Event,
        started: Callable[[Here], None],
        watch: Callable[[Status], None],
    ) -> Outcome:
        trouble: Exception | None = None
        async with self._running(stop) as (here, server, workers):
            try:
                started(here)
                self._write_job("running")
                await self._train(stop, workers, watch)
            except Exception as error:
                trouble = error
                self.training.fail(one_line(f"{type(error).__name__}: {error}"))
            if self._growth is not None:
                await self._growth.end()
            self._write_job("ending")
            self._report_credit()  # while those who countersign it are still there
            await self._keeper.write_now(self._loop.time())
            ending = self.training.course.ending
            swarm = self._latest.last_swarm()  # before its members go
            await server.farewell(ending.reason if ending is not None else "it is over")
            status = self._latest.whole()  # with the reasons of those who have just gone
            self._log.close(self._loop.time(), status)
            result = await self.training.result()  # while whoever holds the parameters is there
        outcome = Outcome(
            folder=self.folder.path,
            status=status,
            parameters=result,
            history=tuple(self.training.course.history),
            link=self._front.page,
        )
        try:
            await asyncio.to_thread(
                write_results,
                self.folder,
                self._prepared,
                status,
                outcome.parameters,
                outcome.history,
                swarm=swarm,
            )
        finally:
            control_file.withdraw(self._entrance)
            self.folder.close()
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
                self.training.stop(STOPPED)
            self._tend(workers, now)
            for scores in await self.training.tick(now):
                self._log.scored(scores)
            await self._keeper.tick(now)
            if self._growth is not None and self.training.course.phase == "training":
                self._growth.tick(now)
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
            opening = asyncio.create_task(self._open(stack, stop))
            stopping = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not opening.done():
                    raise KeyboardInterrupt
                opened = opening.result()
            except BaseException:
                control_file.withdraw(self._entrance)
                self.folder.discard()
                raise
            finally:
                stopping.cancel()
                opening.cancel()
                await asyncio.gather(opening, return_exceptions=True)
            yield opened

    async def _open(
        self, stack: contextlib.AsyncExitStack, stop: asyncio.Event
    ) -> tuple[Here, Server, Workers]:
        options = self._options
        await self._begin()
        if self._hired is not None:
            fleet = self._fleet(self._hired)
            stack.push_async_callback(fleet.stop)
            await fleet.start()
        spread = self._spread = self._data_spread()
        spreading = asyncio.create_task(_spreads(spread, self.training.fail))
        stack.push_async_callback(_ended, spreading)
        server = self._talk = self._server(spread)
        await self._front.listen(stack, server.serve)
        control, secret = Control(self.training, self._loop.time, stop), control_file.new_token()
        api = HttpServer(
            create_app(
                self._latest.status,
                control,
                secret,
                everybody=self._latest.in_parts,
                swarm=self._latest.swarm,
                history=self._curves,
                log=self._recent,
                asking=Asking(self._prepared, self.training.parameters.copy, self._loop.time),
                page=self._page,
            ),
            socket_at("127.0.0.1", options.http_port, "--http-port", any_port=options.any_port),
            max_message_bytes=MAX_HTTP_MESSAGE,
        )
        await api.start()
        stack.push_async_callback(api.stop)
        page = await self._open_page(stack)
        control_file.announce(self._entrance, f"http://{api.address}", secret, os.getpid())
        await self._front.tell(stack, self.training.ledger.places())
        if self._front.listing is not None:
            stack.push_async_callback(self._withdraw, self._front.listing)
        self._remember(int(api.address.rpartition(":")[2]), page)
        workers = Workers(
            self._front.own_door,
            token=self._token,
            logs=self.folder.path / "logs",
            home=self._settings.home,
            paces_ms=options.paces_ms,
            seed=self._seed,
        )
        stack.push_async_callback(asyncio.to_thread, workers.end)
        workers.start_helpers(options.helpers)
        here = self._here(f"http://{api.address}", secret, page.url if page else "")
        self._entry = self._told_of(here)
        return here, server, workers

    async def _open_page(self, stack: contextlib.AsyncExitStack) -> PublicPage | None:
        """None: nobody wants one. Raises PortBusy, SettingError."""
        options = self._options
        if options.page is None:
            return None
        page = await open_page(self._page, options.page, any_port=options.any_page_port)
        stack.push_async_callback(page.server.stop)
        return page

    def _told_of(self, here: Here) -> Entry:
        job, appeal = self._prepared.job, self._prepared.appeal
        return Entry(
            title=job.title,
            cause=job.cause,
            description=appeal.description,
            contact=appeal.contact,
            host=here.key,
            code=here.code,
            local_code=here.local_code,
            link=here.link,
            routes=here.routes if here.admit == "anyone" else (),
            matchmaker=self._options.matchmaker,
            page=here.page,
        )

    def _here(self, url: str, token: str, page: str) -> Here:
        front = self._front
        return Here(
            address=str(front.routes[0]),
            url=url,
            folder=self.folder.path,
            code=front.code,
            key=self._key.id,
            link=front.link,
            local_code=front.local_code,
            routes=tuple(map(str, front.routes)),
            words=front.words,
            admit=self._admit,
            page=page,
            title=self._prepared.job.title,
            token=token,
        )

    def _fleet(self, hired: Hired) -> Fleet:
        return hired.fleet(
            lost=self.training.numbers_lost,
            broken=self.training.fail,
            connect=Dialler(key=self._key, always=self._settings.encrypt == "always"),
            random01=random.random,
            heartbeat_s=self._settings.heartbeat_s,
            silence_s=self._settings.silence_s,
            logs=self.folder.path / "logs",
        )

    def _remember(self, http_port: int, page: PublicPage | None) -> None:
        """Where we are found: whoever goes on with this run is found there, too."""
        options = self._options
        serving = Serving(
            host=options.host,
            port=self._front.port,
            http_port=http_port,
            advertise=options.advertise,
            matchmaker=options.matchmaker,
            matchmaker_key=self._matchmaker_key().hex(),
            admit=options.admit,
            helpers=options.helpers,
            own_servers=options.servers.own,
            servers=options.servers.elsewhere,
            servers_hold=options.servers.hold,
            average_every=options.servers.average_every,
            relays=options.relays,
            router=options.router,
            page=page.place if page else None,
        )
        try:
            resume.remember(self.folder.path, serving)
        except OSError as error:
            logger.warning("where we are found cannot be kept: %s", error.strerror)

    def _data_spread(self) -> Spread:
        async def knock(host: str, port: int, pin: str) -> bytes:
            return await secure.knock(host, port, pin)

        return Spread(
            self._prepared.spreading,
            self._prepared.manifest,
            knock=knock,
            clock=self._loop.time,
            segments=self.training.segments_of,
        )

    def _server(self, spread: Spread | None = None) -> Server:
        return Server(
            self.training,
            self._prepared.blobs,
            token=self._token,
            max_volunteers=self._prepared.maximum,
            heartbeat_s=self._settings.heartbeat_s,
            silence_s=self._settings.silence_s,
            exchanges=self._settings.exchanges,
            clock=self._loop.time,
            place_of=self._place_of,
            admits=self._door() if self._admit == "introduced" else anyone,
            key=self._key,
            name=self._settings.name,
            servers_for=self._hired.places if self._hired is not None else lambda who: (),
            spread=spread,
        )

    def _door(self) -> Door:
        return Door(
            job=self._prepared.job.id,
            host=self._key.id,
            known=self.training.ledger,
            ours=self._helpers,
            matchmaker=self._matchmaker_key,
            wall=time.time,
        )

    def _place_of(self, who: VolunteerId) -> int | None:
        listing = self._front.listing
        return listing.place_of(who) if listing is not None else None

    def _matchmaker_key(self) -> bytes:
        listing = self._front.listing
        return listing.matchmaker_key if listing is not None else self._options.matchmaker_key

    async def _withdraw(self, listing: Listing) -> None:
        status = self.status()
        await listing.withdraw(status.state, status.progress)

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
        listing = self._front.listing
        if listing is not None:
            listing.progress(now, status.progress)
            if listing.tell(status.state):
                self._front.came_back()
            if listing.credit_due(now):
                self._report_credit()
        if status.setbacks > self._told_setbacks:
            self._told_setbacks = status.setbacks
            logger.warning("%s", status.notice)
        warning = self.training.state.warning
        if warning and not self._told_warning:  # once, not with every number in it
            logger.warning("%s", warning)
        self._told_warning = warning
        self._log.note(now, status)

    def _report_credit(self) -> None:
        if self._front.listing is not None:
            given = gifts(self.training.ledger.everyone(), self._helpers)
            self._front.listing.credit(self._loop.time(), given)

    def _write_job(self, state: str) -> None:
        with contextlib.suppress(CrowdgradError):  # a full disk is said again at the end
            self.folder.write_json("job.json", {**describe(self._prepared), "state": state})


async def _spreads(spread: Spread, fail: Callable[[str], None]) -> None:
    """Until cancelled. `fail`: should it ever go wrong, people hear of it instead of waiting."""
    try:
        await spread.run()
    except Exception as error:
        logger.exception("the data does not spread any more")
        fail(one_line(f"the data does not spread any more: {error!r}"))


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
