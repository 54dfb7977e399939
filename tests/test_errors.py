"""The tree of errors is the one its docstring draws, and each is one line with advice."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad import errors
from crowdgrad.errors import CrowdgradError, tree


def drawn() -> list[tuple[int, str, str]]:
    """Depth, name and code ('' for a branch) of every class in the docstring, top to bottom."""
    rows = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"    ([│├└─ ]*)([A-Z]\w+)\s+(CG\d+)?\s*\S", line)
        if found:
            rows.append((len(found[1]) // 4, found[2], found[3] or ""))
    return rows


def existing(
    root: type[CrowdgradError] = CrowdgradError, depth: int = 0
) -> list[tuple[int, str, str]]:
    children = [c for c in root.__subclasses__() if c.__module__ == errors.__name__]
    rows = [(depth, root.__name__, "" if children else root.code)]
    for child in children:
        rows += existing(child, depth + 1)
    return rows


def test_the_docstring_draws_the_tree_as_it_is() -> None:
    assert drawn() == existing()
    assert len(drawn()) > 20


def test_codes_are_unique_and_a_familys_begin_alike() -> None:
    classes = [kind for kind in tree(CrowdgradError) if kind.__module__ == errors.__name__]
    codes = [kind.code for kind in classes]
    assert len(set(codes)) == len(codes)
    for kind in classes:
        assert re.fullmatch(r"CG\d{3}", kind.code)
        parent = kind.__bases__[0]
        if parent not in (Exception, CrowdgradError):
            assert kind.code[:3] == parent.code[:3]


@pytest.mark.parametrize("kind", tree(CrowdgradError), ids=lambda kind: kind.__name__)
def test_an_error_is_one_line_with_code_and_advice(kind: type[CrowdgradError]) -> None:
    assert str(kind("It broke.", advice="Mend it.")) == f"[{kind.code}] It broke. Mend it."
    assert str(kind("It broke.")) == f"[{kind.code}] It broke."
    assert (kind("a", advice="b").message, kind("a", advice="b").advice) == ("a", "b")


@given(st.text(), st.text())
def test_whatever_it_repeats_stays_on_its_line(message: str, advice: str) -> None:
    line = str(CrowdgradError(message, advice=advice))
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    assert line.startswith("[CG000] ")
