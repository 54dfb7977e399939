"""The assembler, by running what it makes: whatever the rules, the bytes answer as the rules do."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.volunteer.sandbox.bpf import ALLOW, KILL, X32_BIT, Check, Rule, assemble, refuse
from crowdgrad.volunteer.sandbox.syscalls import AUDIT_ARCH, NEWEST, NUMBERS
from tests.volunteer.sandbox.filter_machine import answer, run

MACHINES = sorted(NUMBERS)
DEFAULT = refuse(errno.EPERM)

words = st.sampled_from([0, 1, 2, 3, 5, 0x21, 0x10000, 0x7FFFFFFF, 0xFFFFFFFF])
arguments = st.tuples(*[st.builds(lambda low, high: low | high << 32, words, words)] * 6)
checks = st.builds(
    lambda **fields: Check(**fields),
    argument=st.integers(0, 5),
    values=st.lists(words, min_size=1, max_size=5).map(tuple),
    mask=words,
    high=st.booleans(),
)
actions = st.sampled_from([ALLOW, KILL, refuse(errno.EACCES), refuse(errno.ENOSYS)])
filters = st.lists(
    st.builds(
        lambda **fields: Rule(**fields),
        call=st.sampled_from(sorted(NUMBERS["x86_64"])),
        action=actions,
        checks=st.lists(checks, max_size=3).map(tuple),
        otherwise=actions,
    ),
    max_size=12,
    unique_by=lambda rule: rule.call,
)


def by_hand(rules: list[Rule], name: str, given: tuple[int, ...]) -> int:
    for rule in rules:
        if rule.call == name:
            holds = all(
                ((given[c.argument] >> (32 if c.high else 0)) & 0xFFFFFFFF & c.mask) in c.values
                for c in rule.checks
            )
            return rule.action if holds else rule.otherwise
    return DEFAULT


@given(rules=filters, given_=arguments, machine=st.sampled_from(MACHINES), data=st.data())
def test_the_bytes_answer_as_the_rules_do(rules, given_, machine, data):
    code = assemble(rules, DEFAULT, machine)
    listed = [rule.call for rule in rules if rule.call in NUMBERS[machine]]
    name = data.draw(st.sampled_from([*listed, "read", "openat"]))
    assert answer(code, machine, NUMBERS[machine][name], *given_) == by_hand(rules, name, given_)


@pytest.mark.parametrize("machine", MACHINES)
def test_another_calling_convention_ends_the_process(machine):
    code = assemble([Rule(call="read", action=ALLOW)], ALLOW, machine)
    read = NUMBERS[machine]["read"]
    assert answer(code, machine, read) == ALLOW
    foreign = [*(AUDIT_ARCH[other] for other in MACHINES if other != machine), 0x40000003, 0]
    assert {run(code, read, (), architecture) for architecture in foreign} == {KILL}
    assert answer(code, machine, X32_BIT | read) == KILL
    assert answer(code, machine, 0xFFFFFFFF) == KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_a_call_newer_than_the_table_does_not_exist(machine):
    code = assemble([], DEFAULT, machine)
    assert answer(code, machine, NEWEST + 1) == refuse(errno.ENOSYS)
    assert answer(code, machine, NEWEST) == DEFAULT


def test_a_machine_whose_calls_we_do_not_know_is_named():
    with pytest.raises(ValueError, match="riscv64"):
        assemble([], DEFAULT, "riscv64")
