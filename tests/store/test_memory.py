"""The store in memory keeps what every store promises."""

from __future__ import annotations

import pytest

from crowdgrad.store.base import Store
from crowdgrad.store.memory import MemoryStore
from tests.contracts.store_contract import Reopen, StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()

    @pytest.fixture
    def reopen(self) -> Reopen:
        return lambda store: store
