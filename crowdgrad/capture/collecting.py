"""Leave Python's search for circles of objects that nobody needs to when it may find some.

It looks whenever many objects are new. Importing PyTorch and exporting a model make millions and
drop few: of the time both take, a quarter would be spent looking.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection inside."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
