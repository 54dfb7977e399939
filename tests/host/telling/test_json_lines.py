"""Objects of JSON, a line each: what makes no sense costs only itself, and no line fills memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.host.telling import json_lines as module
from crowdgrad.host.telling.json_lines import json_lines

OBJECTS = st.dictionaries(
    st.text(max_size=5), st.integers() | st.text(max_size=5) | st.none(), max_size=3
)
NOISE = st.binary(max_size=40).map(lambda noise: noise.replace(b"\n", b""))


@settings(deadline=None)
@given(lines=st.lists(OBJECTS | NOISE, max_size=20), ends=st.booleans())
def test_every_object_comes_whatever_lies_between(
    tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, object] | bytes], ends: bool
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(b"\n".join(texts) + (b"\n" if ends else b""))
    assert list(json_lines(path)) == [found for text in texts if (found := told(text)) is not None]


def told(text: bytes) -> dict[str, object] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


@settings(deadline=None)
@given(
    most=st.integers(2, 64),
    lengths=st.lists(st.integers(2, 200), max_size=12),
    ends=st.booleans(),
)
def test_overlong_lines_are_left_out_and_those_behind_them_are_not(
    tmp_path_factory: pytest.TempPathFactory, most: int, lengths: list[int], ends: bool
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    texts = ["{" + " " * (length - 2) + "}" for length in lengths]
    path.write_text("\n".join(texts) + ("\n" if ends else ""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_LINE", most)
        assert len(list(json_lines(path))) == sum(length <= most for length in lengths)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, '{"n": ' + "9" * 9000 + "}"])
def test_what_nobody_can_parse_is_left_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"a": 1}}\n{text}\n{{"a": 2}}\n')
    assert [line["a"] for line in json_lines(tmp_path / "a.jsonl")] == [1, 2]


def test_a_line_without_an_end_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.truncate(64 * module.MAX_LINE)
        file.seek(0, 2)
        file.write(b'\n{"a": 1}')
    tracemalloc.start()
    found = list(json_lines(path))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == [{"a": 1}]
    assert most < 8 * module.MAX_LINE


def test_no_file_has_no_lines(tmp_path: Path) -> None:
    assert list(json_lines(tmp_path / "nothing")) == []
    assert list(json_lines(tmp_path)) == []
