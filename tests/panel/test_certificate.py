"""What a machine has given: only what it computed for others, in a picture without surprises."""

from __future__ import annotations

from xml.etree import ElementTree as tree

from crowdgrad.panel.certificate import Gifts, given, svg
from crowdgrad.volunteer.journal import Entry, Journal, Reader


def units(host: str, samples: int, at: float = 0.0, **more: str) -> Entry:
    data: dict[str, str | int | float] = {"samples": samples, "units": 2, "seconds": 30.0, **more}
    return Entry(time=at, host=host, what="units", words="", data=data)


def test_what_it_computed_for_its_own_runs_is_no_gift():
    found = given([units("own", 7), units("ada", 100, 5.0), units("ben", 50)], "own")
    assert (found.samples, found.units, found.hosts, found.jobs) == (150, 4, 2, 2)
    assert (found.seconds, found.since) == (60.0, 5.0)
    assert given([units("own", 7)], "own").units == 0


def test_jobs_are_those_it_did_something_for_each_once():
    left = Entry(time=9.0, host="ada", what="job", words="It ended: nobody agreed.", data={})
    work = [units("ada", 10, job=job) for job in ("digits-1", "digits-2", "digits-1")]
    assert given([left, *work, left, left], "own").jobs == 2


def test_the_journal_is_read_again_when_it_has_changed(tmp_path, monkeypatch):
    reads: list[Reader] = []
    read = Reader.all
    monkeypatch.setattr(Reader, "all", lambda self: reads.append(self) or read(self))
    journal, gifts = Journal(tmp_path, lambda: 1.0), Gifts(tmp_path)
    assert gifts.look("own")[1] == 0
    journal.host = "ada"
    for more in (1, 2):
        journal.write("units", "", {"units": 1, "samples": 10, "seconds": 1.0})
        assert [gifts.look("own")[0].samples for _ in range(3)] == [10 * more] * 3
    assert len(reads) == 3
    assert gifts.look("ada")[0].samples == 0, "that key is ours now"


def test_a_name_is_only_letters_in_it():
    name = '<script>alert(1)</script>" & more'
    text = svg(name, "ab12", given([units("ada", 1_234_567)], "own"), 0.0)
    words = [element.text for element in tree.fromstring(text).iter() if element.text]
    assert name[:40] in words
    assert "1,234,567" in words
    assert not [element for element in tree.fromstring(text).iter() if "script" in element.tag]
