"""What a machine has given: only what it computed for others, in a picture without surprises."""

from __future__ import annotations

from xml.etree import ElementTree as tree

from crowdgrad.panel.certificate import given, svg
from crowdgrad.volunteer.journal import Entry


def units(host: str, samples: int, at: float = 0.0) -> Entry:
    data: dict[str, str | int | float] = {"samples": samples, "units": 2, "seconds": 30.0}
    return Entry(time=at, host=host, what="units", words="", data=data)


def test_what_it_computed_for_its_own_runs_is_no_gift():
    over = Entry(time=9.0, host="ada", what="job", words="", data={})
    found = given([units("own", 7), units("ada", 100, 5.0), units("ben", 50), over], "own")
    assert (found.samples, found.units, found.hosts, found.jobs) == (150, 4, 2, 1)
    assert (found.seconds, found.since) == (60.0, 5.0)
    assert given([units("own", 7)], "own").units == 0


def test_a_name_is_only_letters_in_it():
    name = '<script>alert(1)</script>" & more'
    text = svg(name, "ab12", given([units("ada", 1_234_567)], "own"), 0.0)
    words = [element.text for element in tree.fromstring(text).iter() if element.text]
    assert name[:40] in words
    assert "1,234,567" in words
    assert not [element for element in tree.fromstring(text).iter() if "script" in element.tag]
