"""A store by its URL, and what is loaded for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crowdgrad.errors import MissingExtra
from crowdgrad.store.memory import MemoryStore
from crowdgrad.store.opening import database_modules, open_store


def test_in_memory_nothing_is_loaded_for_it() -> None:
    code = (
        "import sys; from crowdgrad.store.opening import open_store; open_store('memory:')\n"
        "print([m for m in ('sqlalchemy', 'alembic', 'psycopg') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert isinstance(open_store("memory:"), MemoryStore)


@pytest.mark.parametrize("missing", ["sqlalchemy", "alembic", "psycopg"])
def test_what_is_not_installed_is_named_with_advice(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = ("crowdgrad.store.sql", "crowdgrad.store.migration") if missing != "psycopg" else ()
    for name in list(sys.modules):
        if name.partition(".")[0] == missing or name in ours:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    url = "postgresql://127.0.0.1:1/x" if missing == "psycopg" else f"sqlite:///{tmp_path}/x.db"
    with pytest.raises(MissingExtra, match=missing) as caught:
        open_store(url)
    assert "matchmaker" in caught.value.advice


def test_other_modules_are_not_our_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match="nowhere"), database_modules():
        raise ModuleNotFoundError("nowhere", name="nowhere")
