"""Writing behind: one batch at a time, turns of the loop whole, nothing lost when it fails."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from crowdgrad.errors import CannotWrite
from crowdgrad.store.rows import Row
from crowdgrad.store.writer import Batch, Writer


class Page:
    """What is written, and a hand that can be held or made to fail."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, object], Row] = {}
        self.batches: list[Batch] = []
        self.fails: Exception | None = None
        self.tries = 0
        self.free = threading.Event()
        self.free.set()
        self.begun = threading.Event()

    def write(self, batch: Batch) -> None:
        self.tries += 1
        self.begun.set()
        assert self.free.wait(30)
        if self.fails is not None:
            raise self.fails
        self.batches.append(dict(batch))
        for key, row in batch.items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row


@pytest.fixture
def page() -> Page:
    return Page()


def put(writer: Writer, name: str, value: int | None) -> None:
    writer.put("t", (name,), None if value is None else {"v": value})


def values(page: Page) -> dict[str, object]:
    return {str(key[1][0]): row["v"] for key, row in page.rows.items()}  # type: ignore[index]


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - it happens in another thread
        await asyncio.sleep(0.001)


def test_what_is_kept_is_written(page: Page) -> None:
    async def main() -> None:
        writer = Writer(page.write)
        await writer.kept()
        put(writer, "a", 1)
        put(writer, "a", 2)
        put(writer, "b", 3)
        put(writer, "b", None)
        await writer.kept()
        assert values(page) == {"a": 2}
        writer.close()
        writer.close()

    asyncio.run(main())


def test_a_turn_of_the_loop_is_one_batch(page: Page) -> None:
    """Whenever the thread comes by: never half of what changed together."""

    async def main() -> None:
        writer = Writer(page.write)
        for turn in range(20):
            for name in "abc":
                put(writer, name, turn)
                time.sleep(0.004)  # noqa: ASYNC251 - the thread has all the time it wants
            await asyncio.sleep(0)
        await writer.kept()
        writer.close()

    asyncio.run(main())
    assert page.batches[-1]["t", ("a",)] == {"v": 19}
    for batch in page.batches:
        assert len({row["v"] for row in batch.values() if row is not None}) == 1
        assert len(batch) == 3


def test_while_one_batch_is_written_the_rest_gathers(page: Page) -> None:
    async def main() -> None:
        writer = Writer(page.write)
        page.free.clear()
        put(writer, "first", 0)
        first = asyncio.create_task(writer.kept())
        await asyncio.to_thread(page.begun.wait, 30)

        async def come(number: int) -> None:
            put(writer, f"v{number}", number)
            await writer.kept()

        others = [asyncio.create_task(come(number)) for number in range(100)]
        await asyncio.sleep(0.01)
        assert not first.done()
        page.free.set()
        await asyncio.gather(first, *others)
        writer.close()

    asyncio.run(main())
    assert [len(batch) for batch in page.batches] == [1, 100]


def test_who_asks_while_it_is_written_waits_for_that_batch(page: Page) -> None:
    async def main() -> None:
        writer = Writer(page.write)
        page.free.clear()
        put(writer, "a", 1)
        await asyncio.sleep(0)
        await asyncio.to_thread(page.begun.wait, 30)
        late = asyncio.create_task(writer.kept())
        await asyncio.sleep(0.01)
        assert not late.done()
        page.free.set()
        await late
        assert values(page) == {"a": 1}
        writer.close()

    asyncio.run(main())


def test_what_could_not_be_written_is_put_back_under_what_is_newer(page: Page) -> None:
    async def main() -> None:
        writer = Writer(page.write, retry_s=0.01)
        page.fails = CannotWrite("The disk is full.", advice="x")
        page.free.clear()
        put(writer, "a", 1)
        put(writer, "b", 1)
        put(writer, "c", 1)
        waiting = asyncio.create_task(writer.kept())
        await asyncio.to_thread(page.begun.wait, 30)
        put(writer, "a", 2)
        put(writer, "b", None)
        also = asyncio.create_task(writer.kept())
        await asyncio.sleep(0.01)
        page.free.set()
        for task in (waiting, also):
            with pytest.raises(CannotWrite, match="disk is full"):
                await task
        assert writer.trouble == "The disk is full."
        with pytest.raises(CannotWrite):
            await writer.kept()
        page.fails = None
        await until(lambda: not writer.trouble)
        await writer.kept()
        assert values(page) == {"a": 2, "c": 1}
        writer.close()

    asyncio.run(main())


def test_it_tries_again_by_itself(page: Page) -> None:
    async def main() -> None:
        writer = Writer(page.write, retry_s=0.001)
        page.fails = CannotWrite("no")
        put(writer, "a", 1)
        await until(lambda: page.tries >= 5)
        page.fails = None
        await until(lambda: not writer.trouble)
        assert values(page) == {"a": 1}
        writer.close()

    asyncio.run(main())


def test_nobody_waits_for_ever_whatever_happens(
    page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        writer = Writer(page.write, retry_s=0.01)
        page.fails = KeyError("a bug")
        put(writer, "a", 1)
        with pytest.raises(CannotWrite, match="KeyError"):
            await writer.kept()
        page.fails = None
        await until(lambda: not writer.trouble)
        writer.close()

    asyncio.run(main())
    assert values(page) == {"a": 1}
    assert "unforeseen" in caplog.text


def test_closing_writes_what_is_left_or_says_what_is_lost(page: Page) -> None:
    async def main() -> None:
        writer = Writer(page.write)
        put(writer, "a", 1)
        writer.close()
        assert values(page) == {"a": 1}
        with pytest.raises(RuntimeError, match="closed"):
            put(writer, "b", 1)
        failing = Writer(page.write, retry_s=60.0)
        page.fails = CannotWrite("The disk is full.")
        put(failing, "b", 1)
        with pytest.raises(CannotWrite):
            await failing.kept()
        put(failing, "c", 1)
        with pytest.raises(CannotWrite, match="Changes lost: 2"):
            failing.close()
        page.fails = None
        rescued = Writer(page.write, retry_s=60.0)
        page.fails = CannotWrite("The disk is full.")
        put(rescued, "d", 1)
        with pytest.raises(CannotWrite):
            await rescued.kept()
        page.fails = None
        rescued.close()
        assert values(page) == {"a": 1, "d": 1}

    asyncio.run(main())


def test_those_who_stop_waiting_harm_nobody(page: Page) -> None:
    writer = Writer(page.write)

    async def main() -> None:
        page.free.clear()
        put(writer, "a", 1)
        impatient = asyncio.create_task(writer.kept())
        patient = asyncio.create_task(writer.kept())
        await asyncio.to_thread(page.begun.wait, 30)
        impatient.cancel()
        page.free.set()
        await patient
        page.begun.clear()
        page.free.clear()
        put(writer, "b", 1)
        asyncio.create_task(writer.kept())  # noqa: RUF006 - its loop ends before it is answered
        await asyncio.sleep(0)
        await asyncio.to_thread(page.begun.wait, 30)

    asyncio.run(main())
    page.free.set()
    writer.close()
    assert values(page) == {"a": 1, "b": 1}


def test_without_a_loop_everything_is_written_too(page: Page) -> None:
    writer = Writer(page.write)
    put(writer, "a", 1)
    put(writer, "b", 2)
    asyncio.run(writer.kept())
    assert values(page) == {"a": 1, "b": 2}
    writer.close()
