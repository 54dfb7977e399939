"""Data prepared on this machine, under its owner's key: `cg.data.prepare` and `crowdgrad data`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crowdgrad import settings as settings_table
from crowdgrad.data.folder import DataFolder
from crowdgrad.data.preparing import options as wishes
from crowdgrad.data.preparing.prepare import Result, prepare
from crowdgrad.data.progress import Progress
from crowdgrad.files import disk_errors, write_whole
from crowdgrad.host.telling.data_report import render
from crowdgrad.net.identity import load_or_make

REPORT = "report.html"
ENDING = ".prepared"


def prepare_data(
    source: Any,
    out: str | Path | None = None,
    *,
    config: str | Path | None = None,
    jobs: int | None = None,
    **asked: Any,
) -> DataFolder:
    """Make any data ready to spread and train; `cg.train` and job files take what is returned.

    `source`: a path, an address, several of them, arrays (a `cg.DataSet`), a `Dataset` of
    PyTorch's or Hugging Face's, or an iterator of records. `out`: the folder, by default the
    source's name with `.prepared`. `config`: a TOML file; all its keys can be given here as well:
    `target="price", test=0.2, text={"tokens": "byte"}, columns={"id": {"kind": "drop"}}`.
    Raises DataError, MachineError.
    """
    options = asked_for(config, asked)
    return prepare_here(source, place_for(source, out), options, jobs=jobs).folder


def prepare_here(
    source: Any,
    out: Path,
    options: wishes.Options,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    home: Path | None = None,
) -> Result:
    """With this machine's key, and with a page for people."""
    key = load_or_make(home or settings_table.load().home)
    result = prepare(source, out, options, key, jobs=jobs, progress=progress)
    page = out / REPORT
    if not result.reused or not page.is_file():
        with disk_errors(page):
            write_whole(page, render(result.folder, result.record).encode())
    return result


def asked_for(config: str | Path | None, asked: dict[str, Any]) -> wishes.Options:
    """What a file says, and on top of it what is said here. Raises DataMalformed."""
    table = wishes.read_file(Path(config)) if config is not None else {}
    for name, value in asked.items():
        known = table.get(name)
        both = isinstance(value, dict) and isinstance(known, dict)
        table[name] = {**known, **value} if both else value  # type: ignore[dict-item]
    return wishes.from_table(table, str(config) if config is not None else "these options")


def place_for(source: Any, out: str | Path | None) -> Path:
    if out is not None:
        return Path(out)
    if isinstance(source, Sequence) and not isinstance(source, str) and source:
        source = source[0]
    name = "data"
    if isinstance(source, str | Path):
        name = str(source).rstrip("/").rsplit("/", 1)[-1].split("?")[0].split(".")[0] or name
    return Path(f"{name}{ENDING}")
