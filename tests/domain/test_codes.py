"""Codes made from keys: the same for the same key, and a mistyped one is noticed."""

from __future__ import annotations

import contextlib
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.codes import as_local_code, code_fits, code_of, local_code
from crowdgrad.domain.matching import CODE_ALPHABET, as_code

KEYS = st.binary(min_size=32, max_size=32)


def test_a_code_is_three_groups_of_four() -> None:
    assert local_code(bytes(32)) == "E22V-PYGY-9A2G"
    assert as_local_code("k7q2 mpx4 9rtm") == "K7Q2-MPX4-9RTM"
    assert code_of("0" * 16) == "2222-2222-2222"
    assert code_of("f" * 64) == "ZZZZ-ZZZZ-ZZZD"


@given(KEYS)
def test_any_pin_tells_whether_a_code_is_its_keys(public: bytes) -> None:
    digest = hashlib.sha256(public).hexdigest()
    code = local_code(public)
    assert all(code_fits(code, digest[:digits]) for digits in (16, 32, 64))
    other = f"{(int(digest[:13], 16) + 1) % 16**13:013x}{digest[13:]}"
    assert not code_fits(code, other)
    assert not any(code_fits(code, what) for what in ("", digest[:15], digest.upper() + "0", "no"))
    assert as_code(code) is None, "it is not taken for a matchmaker's"


@given(KEYS)
def test_case_spaces_and_dashes_do_not_matter(public: bytes) -> None:
    code = local_code(public)
    for text in (code, code.lower(), code.replace("-", ""), code.replace("-", " "), f" {code} "):
        assert as_local_code(text) == code


@given(KEYS, st.integers(0, 11), st.sampled_from(CODE_ALPHABET))
def test_a_wrong_letter_is_noticed(public: bytes, place: int, letter: str) -> None:
    letters = local_code(public).replace("-", "")
    wrong = letters[:place] + letter + letters[place + 1 :]
    text = f"{wrong[:4]}-{wrong[4:8]}-{wrong[8:]}"
    if letter == letters[place]:
        assert as_local_code(text) == text
    else:
        with pytest.raises(ValueError, match="a letter is wrong"):
            as_local_code(text)


@given(KEYS, st.integers(0, 10))
def test_neighbours_that_changed_places_are_noticed(public: bytes, place: int) -> None:
    letters = local_code(public).replace("-", "")
    first, second = letters[place : place + 2]
    if first != second and {first, second} != {"2", "Z"}:
        wrong = letters[:place] + second + first + letters[place + 2 :]
        with pytest.raises(ValueError, match="changed places"):
            as_local_code(wrong)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("E22V-PYG-9A2G", "11 letters and digits instead of 12"),
        ("E22V-PYGYY-9A2G", "13 letters"),
        ("E22V-PYGY-9A20", "no code has the sign 0"),
        ("e22v-pygl-9a2g", "no code has the sign L"),
    ],
)
def test_it_is_said_what_is_wrong_with_it(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        as_local_code(text)


@pytest.mark.parametrize(
    "text",
    ["", "K7Q-2MP", "20260101-120000-digits-ab12", "digits-ab12", "E22VPYGY9A2G2", "a-b-c", "----"],
)
def test_what_is_something_else_is_none(text: str) -> None:
    assert as_local_code(text) is None


@given(st.text())
def test_whatever_is_typed_is_answered(text: str) -> None:
    with contextlib.suppress(ValueError):
        code = as_local_code(text)
        assert code is None or as_local_code(code) == code


@pytest.mark.parametrize("text", ["", "abc", "g" * 16, "0" * 65, "A" * 16])
def test_only_a_fingerprint_has_a_code(text: str) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        code_of(text)
