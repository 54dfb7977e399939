"""The store in memory keeps what every store promises."""

from __future__ import annotations

import pytest

from crowdgrad.store.base import Store
from crowdgrad.store.memory import MemoryStore
from tests.contracts.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()
