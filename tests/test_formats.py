"""`docs/formats.md` says every bound as it is: each row that names a constant holds its value."""

from __future__ import annotations

import importlib
import re
from operator import attrgetter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/formats.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| ([^|]*) \| ([^|]*) \| `(crowdgrad/[\w/]+)\.py::([\w.]+)` \|", PAGE, re.MULTILINE
)
SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
FAMILIES = (
    "crowdgrad/net/messages.py", "crowdgrad/net/framing.py", "crowdgrad/program/wire.py",
    "crowdgrad/program/nodes.py", "crowdgrad/program/graph.py", "crowdgrad/program/artifact.py",
    "crowdgrad/domain/data.py", "crowdgrad/domain/work.py", "crowdgrad/domain/spreading.py",
    "crowdgrad/data/shards.py",
)  # fmt: skip
"""Modules whose every MAX_ must have a row."""
TOLD_BY_OTHERS = {"MAX_NAME"}
"""A host's own name, in the table of messages."""


def ways_to_say(value: int) -> set[str]:
    """How a page may write a number."""
    said = {f"{value:,}"}
    for unit, bits in (("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)):
        if value % (1 << bits) == 0:
            said.add(f"{value >> bits:,} {unit}")
    if value & (value - 1) == 0:
        said.add(f"2{str(value.bit_length() - 1).translate(SUPERSCRIPT)}")
    if value == 10 ** (len(str(value)) - 1):
        said.add(f"10{str(len(str(value)) - 1).translate(SUPERSCRIPT)}")
    return said


@pytest.mark.parametrize(("what", "most", "module", "name"), ROWS, ids=lambda cell: cell[:40])
def test_a_bound_on_the_page_is_the_bound_in_the_code(
    what: str, most: str, module: str, name: str
) -> None:
    value = attrgetter(name)(importlib.import_module(module.replace("/", ".")))
    words = re.findall(r"10[⁰¹²³⁴⁵⁶⁷⁸⁹]+|2[⁰¹²³⁴⁵⁶⁷⁸⁹]+|[\d,]*\d(?: [TGMK]iB)?", most)
    assert ways_to_say(value) & set(words), f"{what}: the page says {most}, the code {value:,}"


@pytest.mark.parametrize("path", FAMILIES)
def test_every_bound_of_a_format_is_on_the_page(path: str) -> None:
    bounds = set(re.findall(r"^(MAX_\w+)\b", (ROOT / path).read_text("utf-8"), re.MULTILINE))
    named = {name for _, _, module, name in ROWS if f"{module}.py" == path}
    assert bounds - named <= TOLD_BY_OTHERS
