"""A mirror in an object store, by fsspec and the store's own package, without a name or a password.

A host is a stranger: it may name public buckets of the three large stores, whose packages know
where those are, and nothing else; no file of this machine, no server of a network. Who owns this
process may pass a file system that is open already, whatever it is.

fsspec is a host's; a volunteer has it where somebody installed it. Every public bucket is a web
server besides: by its https:// address it needs no package.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crowdgrad.domain.data import ChunkHash
from crowdgrad.errors import DataMissing, MissingExtra, NotAgreed, Unreachable
from crowdgrad.net.resolve import in_own_thread
from crowdgrad.replication.mirrors.address import parse
from crowdgrad.replication.mirrors.base import (
    MISSING_ADVICE,
    WITHIN_S,
    check_bytes,
    check_size,
    chunk_file,
)

MAX_THREADS = 32
"""Of one mirror: those nobody waits for any longer end when the store likes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    package: str
    options: Mapping[str, object]
    """What makes its package ask without saying who asks."""


STORES = {
    "s3": Store(package="s3fs", options={"anon": True}),
    "gs": Store(package="gcsfs", options={"token": "anon"}),
    "abfs": Store(package="adlfs", options={"anon": True}),
}
SECRETS = ("account_key", "sas_token", "connection_string", "credential", "client_id")
"""Where adlfs keeps what it found in the environment, asked to or not."""


class StoreMirror:
    """`file_system`: an open one, in which `address` may be anything. Raises ValueError."""

    def __init__(
        self, address: str, *, file_system: Any | None = None, within_s: float = WITHIN_S
    ) -> None:
        self.name = address.rstrip("/")
        self._scheme = ""
        if file_system is None:
            place = parse(address)
            if place.scheme not in STORES:
                raise ValueError(f"{address!r} is not in an object store")
            self._scheme, self.name = place.scheme, str(place)
        self._file_system = file_system
        self._within_s = within_s
        self._opening = threading.Lock()
        self._threads = threading.BoundedSemaphore(MAX_THREADS)

    async def get(self, name: ChunkHash, size: int) -> bytes:
        file = chunk_file(name, size)
        if not self._threads.acquire(blocking=False):
            raise Unreachable(f"{self.name} still owes us {MAX_THREADS} answers.")
        try:
            async with asyncio.timeout(self._within_s):
                data = await in_own_thread(lambda: self._read(file, size), "mirror")
        except TimeoutError:
            raise Unreachable(
                f"{self.name} has not sent {size:,} bytes within {self._within_s:g} s."
            ) from None
        check_size(len(data) if len(data) <= size else f"more than {size}", size, self.name)
        check_bytes(name, data, self.name)
        return data

    def close(self) -> None:
        """fsspec keeps its connections to itself."""

    def _read(self, file: str, size: int) -> bytes:
        """Blocks. One byte more than there should be, where there is more."""
        try:
            with self._opening:
                if self._file_system is None:
                    self._file_system = _opened(self._scheme, self.name)
            return bytes(self._file_system.cat_file(f"{self.name}{file}", start=0, end=size + 1))
        except (MissingExtra, NotAgreed):
            raise
        except (FileNotFoundError, PermissionError):
            raise DataMissing(
                f"{self.name} does not have a chunk, or not for everybody.", advice=MISSING_ADVICE
            ) from None
        except Exception as error:  # whatever a file system's own library raises
            words = (str(error).splitlines() or [""])[0][:200] or type(error).__name__
            raise Unreachable(f"{self.name} cannot be read: {words}.") from error
        finally:
            self._threads.release()


def _opened(scheme: str, address: str) -> Any:
    """Raises MissingExtra, NotAgreed, and whatever packages raise."""
    store = STORES[scheme]
    try:
        import fsspec

        file_system, _ = fsspec.core.url_to_fs(address, **store.options)
    except ImportError as error:
        raise MissingExtra(
            f"The mirror {address} needs a package that is not installed: {error}.",
            advice=f"Do without, or install it beside crowdgrad: pip install {store.package}.",
        ) from error
    if scheme == "abfs" and any(getattr(file_system, secret, None) for secret in SECRETS):
        raise NotAgreed(
            f"The mirror {address} would be asked with this machine's own password for Azure.",
            advice="Do without it, or unset AZURE_STORAGE_… where crowdgrad is started.",
        )
    return file_system
