"""The layers of those who dial a relay: its words first, then the bytes of whoever is reached.

Once it is `ready` a layer only passes bytes on; whoever holds it may take it out of the way when
nothing is left in it.
"""

from __future__ import annotations

from crowdgrad.errors import MessageError, PeerError
from crowdgrad.net import relay_words as words
from crowdgrad.net.identity import Identity
from crowdgrad.net.relay_words import MAGIC, VERSION, Challenge, Hi, Reader, Refused, at_of, pack
from crowdgrad.net.transport.base import Payload
from crowdgrad.net.transport.layers import Bytes

__all__ = ["Answering", "Calling", "Serving", "at_of"]


class _Dialling:
    """What all of them do: say who we are, hear what the relay says, then pass bytes on."""

    closed = False

    def __init__(self) -> None:
        self.ready = False
        self._reader = Reader(magic=False)
        self._up, self._down = Bytes(), Bytes()

    def begin(self) -> None:
        self._down.put(MAGIC + pack(Hi(version=VERSION)))

    def feed(self, data: memoryview) -> None:
        if self.ready:
            self._up.put(data)
            return
        rest = self._reader.put(data)
        while not self.ready and (body := self._reader.body()) is not None:
            self._hear(words.of_relay(body))
            if not self.ready:
                rest = self._reader.put(rest)
        if self.ready:
            self._up.put(self._reader.rest() + rest)

    def _hear(self, word: words.FROM_RELAY) -> None:
        if isinstance(word, Refused):
            raise words.told(word)
        if isinstance(word, Challenge):
            self._challenged(word.nonce)
        else:
            self._answered(word)

    def _challenged(self, nonce: bytes) -> None:
        """Sign what we ask for."""

    def _answered(self, word: words.FROM_RELAY) -> None:
        raise _out_of_place(word)

    def read_into(self, room: memoryview) -> int:
        return self._up.read_into(room)

    def write(self, data: Payload) -> None:
        assert self.ready, "nobody has been reached yet"
        self._down.put(data)

    def take(self) -> bytes:
        return self._down.take()

    def end(self) -> None:
        return


class _Asking(_Dialling):
    """Those who sign what they ask for, once."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = False

    def _challenged(self, nonce: bytes) -> None:
        if self._asked:
            raise MessageError("The relay challenges us twice.")
        self._asked = True
        self._down.put(pack(self._ask(nonce)))

    def _ask(self, nonce: bytes) -> words.Word:
        raise NotImplementedError


class Calling(_Asking):
    """A volunteer's: through to the host with that key."""

    def __init__(self, host: str, key: Identity, *, at: str, job: str = "") -> None:
        """`host`: its pin. `at`: under which name the relay is dialled (`at_of`)."""
        super().__init__()
        self._host, self._key, self._at, self._job = host, key, at, job

    def _ask(self, nonce: bytes) -> words.Word:
        return words.call(self._key, nonce, at=self._at, host=self._host, job=self._job)

    def _answered(self, word: words.FROM_RELAY) -> None:
        if not self._asked or not isinstance(word, words.Spliced):
            raise _out_of_place(word)
        self.ready = True


class Answering(_Dialling):
    """A host's, for one caller. The ticket is proof enough, so it goes with the first word."""

    def __init__(self, ticket: bytes) -> None:
        super().__init__()
        self._ticket = ticket

    def begin(self) -> None:
        super().begin()
        self._down.put(pack(words.Answer(ticket=self._ticket)))

    def _answered(self, word: words.FROM_RELAY) -> None:
        if not isinstance(word, words.Spliced):
            raise _out_of_place(word)
        self.ready = True


class Serving(_Asking):
    """A host's that wants to be called. Above it are frames between host and relay."""

    def __init__(self, key: Identity, *, at: str, job: str = "") -> None:
        super().__init__()
        self.registered: words.Registered | None = None
        """What the relay grants; once it is ready."""
        self._key, self._at, self._job = key, at, job

    def _ask(self, nonce: bytes) -> words.Word:
        return words.serve(self._key, nonce, at=self._at, job=self._job)

    def _answered(self, word: words.FROM_RELAY) -> None:
        if not self._asked or not isinstance(word, words.Registered):
            raise _out_of_place(word)
        if not 2 * word.heartbeat_s <= word.silence_s:
            raise MessageError(
                f"The relay beats every {word.heartbeat_s:g} s and takes us for gone after "
                f"{word.silence_s:g} s."
            )
        self.registered = word
        self.ready = True


def _out_of_place(word: words.FROM_RELAY) -> PeerError:
    return MessageError(f"The relay says {type(word).__name__} out of place.")
