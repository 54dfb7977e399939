"""What a host has told of data that grows, and whether there is room for it here.

Lanes ask before every unit. What finds room in the workshop is learned while they work; what does
not makes them stop, with their units in hand, until a larger workshop stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import msgspec

from crowdgrad.errors import ChildDied, DataAltered
from crowdgrad.net.messages import Admit, Grew
from crowdgrad.replication.base import Chunks
from crowdgrad.volunteer.conversation import Conversation
from crowdgrad.volunteer.workshop import Workshop


class Additions:
    def __init__(self, chunks: Chunks, say: Callable[[str], None]) -> None:
        self._chunks = chunks
        self._say = say
        self._outgrown: Grew | None = None
        """Data for which there is no room any more."""
        self._learning = asyncio.Lock()

    @property
    def fit(self) -> bool:
        """Whether all that was heard of has found room."""
        return self._outgrown is None

    def forget(self) -> None:
        """Another workshop, or another connection: what was too much may not be any more."""
        self._outgrown = None

    async def caught_up(self, conversation: Conversation, admit: Admit, shop: Workshop) -> bool:
        """Whether a workshop of before knows the data as the host has it now, or could learn it."""
        if shop.job.manifest == admit.job.manifest:
            return True
        news = Grew(
            manifest=admit.job.manifest, manifest_bytes=admit.manifest_bytes, seal=admit.seal
        )
        try:
            return admit.job.growing and await shop.grow(news, conversation, self._chunks)
        except (DataAltered, ChildDied):
            return False  # looked at as whatever is opened anew is

    async def learned(self, conversation: Conversation, shop: Workshop) -> bool:
        """Know all the host has told of its data; False: there is no room for it here."""
        news = conversation.grew
        if news is None or news.manifest == shop.job.manifest:
            return self.fit
        async with self._learning:
            news = conversation.grew
            assert news is not None
            if self.fit and news.manifest != shop.job.manifest:
                if await shop.grow(news, conversation, self._chunks):
                    records = shop.manifest.records("train")
                    self._say(f"The data has grown: {records:,} records to train on.")
                else:
                    self._outgrown = news
        return self.fit

    def larger(self, admit: Admit) -> Admit:
        """As if we joined only now: the job with the data there is no room for."""
        news = self._outgrown
        assert news is not None
        self._say("The data has outgrown its place here: making a larger one.")
        return msgspec.structs.replace(
            admit,
            job=replace(admit.job, manifest=news.manifest),
            manifest_bytes=news.manifest_bytes,
            seal=news.seal,
        )
