"""What is remembered of hosts and refused jobs: strictly, in bounds, whatever the disk does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crowdgrad.errors import DiskFull, SettingError, TargetError
from crowdgrad.volunteer import hosts
from crowdgrad.volunteer.hosts import KnownHosts, Refusals, fingerprint, fingerprints

KEY, OTHER = "0123456789abcdef", "f" * 16
PROGRAM = "ab" * 32


def test_what_is_said_last_holds_and_survives(tmp_path: Path) -> None:
    KnownHosts(tmp_path).set(KEY, "trusted", name="Ada", now=10.0)
    KnownHosts(tmp_path).set(KEY, "blocked", name="", now=20.0)
    (host,) = KnownHosts(tmp_path).all()
    assert (host.status, host.name, host.first, host.last) == ("blocked", "Ada", 10.0, 20.0)
    assert KnownHosts(tmp_path).get(OTHER) is None
    assert KnownHosts(tmp_path).forget(KEY)
    assert not KnownHosts(tmp_path).forget(KEY)
    assert KnownHosts(tmp_path).all() == []


def test_seen_changes_only_who_is_known(tmp_path: Path) -> None:
    known = KnownHosts(tmp_path)
    known.seen(KEY, name="Ada", now=1.0)
    assert known.all() == []
    known.set(KEY, "agreed", name="", now=1.0)
    known.seen(KEY, name="Ada\x1b", now=2.0)
    assert [(host.name, host.last) for host in known.all()] == [("Ada", 2.0)]


ROW = {"key": KEY, "status": "trusted", "name": "", "first": 1.0, "last": 1.0}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[1]",
        "[" * 5000,
        json.dumps([ROW | {"key": "short"}]),
        json.dumps([ROW | {"status": "friend"}]),
        json.dumps([ROW | {"name": "\x1b[2J"}]),
        json.dumps([ROW | {"first": -1.0}]),
        json.dumps([ROW | {"more": 1}]),
        json.dumps([ROW]) + " " * hosts.MAX_FILE_BYTES,
    ],
    ids=range(10),
)
def test_a_file_that_makes_no_sense_is_an_error_with_advice(tmp_path: Path, content: str) -> None:
    (tmp_path / "hosts.json").write_text(content)
    with pytest.raises(SettingError, match=r"hosts\.json cannot be read") as refused:
        KnownHosts(tmp_path).get(KEY)
    assert "Mend it" in refused.value.advice


def test_the_list_is_bounded_and_forgets_old_consents_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "MAX_HOSTS", 3)
    known = KnownHosts(tmp_path)
    known.set(f"{1:016x}", "trusted", name="", now=1.0)
    known.set(f"{2:016x}", "agreed", name="", now=3.0)
    known.set(f"{3:016x}", "agreed", name="", now=2.0)
    known.set(f"{4:016x}", "blocked", name="", now=4.0)
    assert sorted(host.key[-1] for host in known.all()) == ["1", "2", "4"]
    known.set(f"{5:016x}", "blocked", name="", now=5.0)
    with pytest.raises(SettingError, match="3 hosts are on the list already"):
        known.set(f"{6:016x}", "agreed", name="", now=6.0)
    known.set(f"{5:016x}", "trusted", name="", now=7.0)  # who is there already always fits
    assert len(known.all()) == 3


def test_keys_as_people_type_them() -> None:
    assert fingerprint(f" {KEY.upper()} ") == KEY
    for wrong in ("", "0123", KEY + "0", "g" * 16):
        with pytest.raises(TargetError, match="is not a host's key"):
            fingerprint(wrong)
    assert fingerprints(f"{KEY}, {OTHER},") == {KEY, OTHER}
    assert fingerprints("") == frozenset()
    with pytest.raises(SettingError, match="trusted_hosts"):
        fingerprints(f"{KEY}; {OTHER}")


# -- refused jobs -----------------------------------------------------------------------------


def test_a_refused_job_stays_refused_until_it_is_forgiven(tmp_path: Path) -> None:
    refusals = Refusals(tmp_path)
    assert refusals.reason(PROGRAM) is None
    refusals.add(PROGRAM, "Digits", "the trainer\ndied three times", 9.0)
    refusals.add(PROGRAM, "Digits", "and again", 10.0)
    assert Refusals(tmp_path).reason(PROGRAM) == "and again"
    assert len(Refusals(tmp_path).all()) == 1
    assert refusals.forget("abab") == []  # too short to name it
    (gone,) = refusals.forget(PROGRAM[:12])
    assert gone.title == "Digits"
    assert refusals.reason(PROGRAM) is None
    assert Refusals(tmp_path).all() == []


def test_a_job_is_forgiven_by_its_title(tmp_path: Path) -> None:
    refusals = Refusals(tmp_path)
    refusals.add(PROGRAM, "Digits", "x", 9.0)
    refusals.add("cd" * 32, "Letters", "x", 9.0)
    assert [row.program for row in refusals.forget("Letters")] == ["cd" * 32]
    assert refusals.reason(PROGRAM) == "x"


def test_refusals_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "MAX_REFUSALS", 3)
    for number in range(5):
        Refusals(tmp_path).add(f"{number:064x}", "t", "r", float(number))
    assert [row.at for row in Refusals(tmp_path).all()] == [2.0, 3.0, 4.0]


def test_a_full_disk_does_not_make_a_refused_job_welcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = Refusals(tmp_path)

    def full(*what: object, **how: object) -> None:
        raise DiskFull("There is no room left.")

    monkeypatch.setattr(refusals._rows, "write", full)
    refusals.add(PROGRAM, "Digits", "it died", 9.0)
    assert refusals.reason(PROGRAM) == "it died"
    assert "is not kept" in caplog.text
