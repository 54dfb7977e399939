"""The store in a database keeps what every store promises, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crowdgrad.store.base import Store
from crowdgrad.store.opening import open_store
from tests.contracts.store_contract import Reopen, StoreContract


class SqlContract(StoreContract):
    @pytest.fixture
    def url(self) -> str:
        raise AssertionError("a subclass says which database")

    @pytest.fixture
    def opened(self) -> Iterator[list[Store]]:
        """All that a test has opened; they are closed at its end."""
        stores: list[Store] = []
        yield stores
        for store in stores:
            store.close()

    @pytest.fixture
    def store(self, url: str, opened: list[Store]) -> Store:
        opened.append(open_store(url))
        return opened[-1]

    @pytest.fixture
    def reopen(self, url: str, opened: list[Store]) -> Reopen:
        def again(store: Store) -> Store:
            store.close()
            opened.append(open_store(url))
            return opened[-1]

        return again


class TestSqlite(SqlContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/matchmaker.db"


class TestPostgres(SqlContract):
    @pytest.fixture
    def url(self, postgres_url: str) -> str:
        return postgres_url
