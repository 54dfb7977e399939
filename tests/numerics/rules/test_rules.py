"""What holds for every rule, and how one is made of what a stranger sends."""

from __future__ import annotations

import itertools
import tracemalloc
from dataclasses import FrozenInstanceError, asdict, fields
from typing import Any

import numpy as np
import pytest

from crowdgrad.numerics import vectors
from crowdgrad.numerics.rules import OPTIMISERS, RULES, rule_from
from crowdgrad.numerics.rules.adamw import AdamW
from crowdgrad.numerics.rules.base import Step, begin
from tests.numerics.rules.streams import SIZE, follow, gradients, start

ALL = pytest.mark.parametrize("name", RULES)
LARGEST = float(np.finfo(np.float32).max)


def test_the_lists() -> None:
    assert OPTIMISERS == (
        "sgd", "momentum", "nesterov", "adagrad", "adadelta", "rmsprop", "adam", "adamw", "nadam",
    )  # fmt: skip
    assert set(RULES) - set(OPTIMISERS) == {"dc_constant", "dc_adaptive", "averaging"}
    assert {name: rule.name for name, rule in RULES.items()} == {name: name for name in RULES}
    assert [name for name in RULES if RULES[name].needs_base] == ["dc_constant", "dc_adaptive"]


@ALL
def test_it_says_what_it_does_in_one_sentence(name: str) -> None:
    sentence = RULES[name].sentence
    assert sentence[0].isupper()
    assert sentence.endswith(".")
    assert sentence.count(".") == 1
    assert len(sentence) <= 100


@ALL
def test_it_cannot_be_changed(name: str) -> None:
    rule = rule_from(name, {})
    for field in fields(rule):
        with pytest.raises(FrozenInstanceError):
            setattr(rule, field.name, 0.5)
    assert not hasattr(rule, "__dict__")
    assert all(type(value) is float for value in asdict(rule).values())


@ALL
@pytest.mark.parametrize("block", [1_000, SIZE])
def test_the_size_of_the_blocks_does_not_matter(
    name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule, usual, other = rule_from(name, {}), start(), start()
    remembered = follow(rule, usual, gradients(3))
    if block > vectors.BLOCK:
        monkeypatch.setattr(f"{type(rule).__module__}.BLOCK", block, raising=False)
    monkeypatch.setattr(vectors, "BLOCK", block)
    memory = follow(rule, other, gradients(3))
    assert np.array_equal(usual, other)
    for vector, same in zip(remembered.vectors.values(), memory.vectors.values(), strict=True):
        assert np.array_equal(vector, same)


@ALL
def test_a_copy_of_the_memory_goes_on_the_same_way(name: str) -> None:
    rule, w, stream = rule_from(name, {}), start(500), gradients(9, 500)
    memory = follow(rule, w, stream[:4])
    copied, other = memory.copy(), w.copy()
    follow(rule, w, stream[4:], memory=memory)
    assert copied.steps == 4
    follow(rule, other, stream[4:], memory=copied)
    assert np.array_equal(w, other)
    assert (memory.steps, memory.numbers) == (copied.steps, copied.numbers) == (9, copied.numbers)


@ALL
def test_a_cleared_memory_is_a_new_one(name: str) -> None:
    rule, first, again, stream = rule_from(name, {}), start(500), start(500), gradients(4, 500)
    memory = follow(rule, first, stream)
    memory.clear()
    follow(rule, again, stream, memory=memory)
    assert np.array_equal(first, again)


@ALL
def test_all_stays_float32_and_in_its_place(name: str) -> None:
    rule, w = rule_from(name, {}), start(100)
    memory = begin(rule, 100)
    held = dict(memory.vectors)
    assert tuple(held) == rule.vectors
    follow(rule, w, gradients(2, 100), memory=memory)
    assert w.dtype == np.float32
    assert not np.array_equal(w, start(100))
    for key, vector in memory.vectors.items():
        assert vector is held[key]
        assert vector.dtype == np.float32


@ALL
def test_what_gets_no_gradient_stays(name: str) -> None:
    if name in ("averaging", "adamw"):  # neither promises it
        return
    w, rule = start(100), rule_from(name, {})
    follow(rule, w, [np.zeros(100, np.float32)] * 3)
    assert np.array_equal(w, start(100))


@ALL
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, LARGEST])
def test_numbers_that_are_not_finite_pass_silently(name: str, bad: float) -> None:
    rule, w = rule_from(name, {}), start(100)
    update = np.ones(100, np.float32)
    update[50] = bad
    follow(rule, w, [update], rate=1e39)
    if np.isnan(bad):
        assert np.isnan(w[50])


@ALL
def test_no_memory_as_long_as_the_vector_is_taken(name: str) -> None:
    rule, size = rule_from(name, {}), 6 * vectors.BLOCK
    w, update, memory = start(size), start(size), begin(rule, size)
    step = Step(rate=0.1, base_D=start(size))
    tracemalloc.start()
    rule.step(w, update, memory, step)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 2 * 4 * vectors.BLOCK + 50_000


@ALL
def test_an_empty_vector_is_fine(name: str) -> None:
    memory = follow(rule_from(name, {}), np.empty(0, np.float32), [np.empty(0, np.float32)])
    assert memory.steps == 1


@pytest.mark.parametrize("name", ["dc_constant", "dc_adaptive"])
def test_whoever_forgets_what_the_update_came_from_is_told(name: str) -> None:
    rule = rule_from(name, {})
    with pytest.raises(AssertionError, match="needs the parameters"):
        rule.step(start(3), start(3), begin(rule, 3), Step(rate=0.1))


UNIT = {"momentum", "dampening", "rho", "alpha", "beta1", "beta2"}
WRONG: list[tuple[str, str, float]] = [
    (name, field.name, value)
    for name, rule in RULES.items()
    for field in fields(rule)
    for value in (
        -0.1,
        *(
            [1.0, 1.5]
            if field.name in UNIT or (name, field.name) == ("dc_adaptive", "decay")
            else []
        ),
        *([0.0, 1e-46, 2.0] if field.name == "eps" else []),
        *([0.0, 1.1] if field.name == "share" else []),
        1e300,
    )
]


@pytest.mark.parametrize(("name", "setting", "value"), WRONG)
def test_nonsense_is_refused_with_its_value(name: str, setting: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{setting} ") as raised:
        rule_from(name, {setting: value})
    assert str(value) in str(raised.value)


@pytest.mark.parametrize(
    ("setting", "ends"),
    [
        *((name, [0.0, 1 - 2**-53]) for name in sorted(UNIT)),
        ("eps", [1e-30, 1.0]),
        ("share", [1e-300, 1.0]),
        ("strength", [0.0, 1e6]),
        ("momentum_decay", [0.0, 1e6]),
    ],
)
def test_the_ends_of_what_makes_sense_are_taken(setting: str, ends: list[float]) -> None:
    having = [n for n, rule in RULES.items() if setting in {field.name for field in fields(rule)}]
    assert having
    for name, value in itertools.product(having, ends):
        w, rule = start(10), rule_from(name, {setting: value})
        follow(rule, w, gradients(2, 10))
        assert np.isfinite(w).all()
    assert rule_from("adamw", {"decay": 1e6}) == AdamW(decay=1e6)


def test_settings_reach_the_rule() -> None:
    for name, rule in RULES.items():
        for number, field in enumerate(fields(rule)):
            value = 0.25 + number / 16
            assert asdict(rule_from(name, {field.name: value}))[field.name] == value
    made = asdict(rule_from("rmsprop", {"momentum": 0}))
    assert made == {"alpha": 0.99, "eps": 1e-8, "momentum": 0.0}
    assert type(made["momentum"]) is float


@pytest.mark.parametrize("name", ["", "SGD", "adam ", "__init__", "x" * 10**6, None, 3, ["sgd"]])
def test_an_unknown_rule_is_refused_by_name(name: Any) -> None:
    with pytest.raises(ValueError, match=r"^there is no rule .*only sgd, momentum") as raised:
        rule_from(name, {})
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("key", ["rate", "name", "vectors", "__class__", "", "y" * 10**6, 5])
def test_an_unknown_setting_is_refused_by_name(key: Any) -> None:
    with pytest.raises(ValueError, match=r"^rule adagrad has no setting .*: eps$") as raised:
        rule_from("adagrad", {key: 0.5})
    assert len(str(raised.value)) < 200
    with pytest.raises(ValueError, match="rule sgd has no setting 'momentum'; its settings: none"):
        rule_from("sgd", {"momentum": 0.5})


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -float("inf"), True, None, "0.5", [0.5], 1j, np.float32(0.5)],
)
def test_a_setting_is_a_finite_number(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^beta1 of rule adam is not a finite number: "):
        rule_from("adam", {"beta1": value})


def test_a_number_beyond_every_float_is_refused() -> None:
    for value in (10**400, -(10**400)):
        with pytest.raises(ValueError, match="momentum"):
            rule_from("nesterov", {"momentum": value})
