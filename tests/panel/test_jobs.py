"""A draft becomes the job file that says the same."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from crowdgrad.errors import JobFileError
from crowdgrad.panel.jobs import Draft, Stop, Volunteers, to_toml


def test_a_draft_is_written_with_what_it_says_and_no_more():
    draft = Draft(
        title="Digits",
        data="digits",
        model={"kind": "mlp", "width": 16},
        recipe={"name": "async_sgd", "lr": 0.1, "schedule": {"shape": "cosine"}},
        stop=Stop(epochs=3, target=0.9),
        volunteers=Volunteers(maximum=10, invited=("ab" * 8,)),
    )
    assert tomllib.loads(to_toml(draft)) == {
        "title": "Digits",
        "data": "digits",
        "seed": 0,
        "model": {"kind": "mlp", "width": 16},
        "recipe": {"name": "async_sgd", "lr": 0.1, "schedule": {"shape": "cosine"}},
        "stop": {"epochs": 3, "target": 0.9},
        "volunteers": {"minimum": 0, "maximum": 10, "invited": ["ab" * 8]},
    }


def test_a_draft_has_one_model():
    for models in ({}, {"task": "a:b", "model": {"kind": "mlp"}}):
        with pytest.raises(JobFileError, match="one model"):
            to_toml(Draft(title="", data="digits", **models))


@pytest.mark.parametrize("more", [{"stop": {"epoch": 3}}, {"volunteers": {"most": 3}}, {"sed": 1}])
def test_what_a_job_file_does_not_know_is_no_draft(more):
    with pytest.raises(ValidationError, match="Unexpected keyword"):
        TypeAdapter(Draft).validate_python({"title": "", "data": "digits", **more})


TEXTS = st.text(st.characters(exclude_categories=("Cs",)))
KEYS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
VALUES = st.one_of(
    st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False), TEXTS
)


@given(TEXTS.filter(bool), TEXTS, st.dictionaries(KEYS, VALUES | st.dictionaries(KEYS, VALUES)))
def test_whatever_is_typed_the_file_says_it(title, description, recipe):
    draft = Draft(title=title, data="digits", description=description, task="a:b", recipe=recipe)
    told = tomllib.loads(to_toml(draft))
    assert (told["title"], told.get("description", "")) == (title, description)
    assert told.get("recipe", {}) == recipe


@pytest.mark.parametrize("recipe", [{"a b": 1}, {"": 1}, {"lr]\n[x": 1}, {"lr": {"a.b": 1}}])
def test_what_is_no_key_is_refused(recipe):
    with pytest.raises(JobFileError, match="no key"):
        to_toml(Draft(title="", data="digits", task="a:b", recipe=recipe))


def test_half_a_character_is_refused():
    with pytest.raises(JobFileError, match="Half a character"):
        to_toml(Draft(title="\ud800", data="digits", task="a:b"))
