"""Links: what is written is read again, and what was altered never loses its pin unnoticed."""

from __future__ import annotations

import contextlib
import string

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from crowdgrad.domain.routes import MAX_ROUTES, Route, route_of
from crowdgrad.errors import TargetError
from crowdgrad.net import links
from crowdgrad.net.identity import fits, guest
from crowdgrad.net.links import MAX_LINK, Link, of_matchmaker, of_routes, pin_of, read

KEY = guest("links").public
PIN = pin_of(KEY)
PAGE = "https://match.example.org/j/K7Q-2MP"

NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,30}", fullmatch=True)
PATHS = st.text(st.sampled_from(string.ascii_letters + string.digits + "/-_.~%?&=+@!"), max_size=20)
PORTS = st.integers(1, 65535)
HOSTS = st.one_of(
    NAMES,
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(lambda a: f"[{a.exploded}]"),
    st.just("[fe80::1%eth0]"),
)
SPELT = st.one_of(
    st.builds("{}:{}".format, HOSTS, PORTS),
    st.builds("relay:{}:{}".format, HOSTS, PORTS),
    st.builds("relay:wss://{}/{}".format, NAMES, PATHS),
)


def sound(text: str) -> bool:
    try:
        route_of(text)
    except ValueError:
        return False
    return True


ROUTES = SPELT.filter(sound).map(route_of)
JOBS = st.one_of(st.just(""), st.from_regex(r"[A-Za-z0-9][A-Za-z0-9-]{8,63}", fullmatch=True))
LINKS = st.builds(
    lambda routes, job: of_routes(routes, KEY, job), st.lists(ROUTES, min_size=1, max_size=4), JOBS
)


def test_links_look_as_the_page_says() -> None:
    direct, relay = route_of("192.0.2.7:8701"), route_of("relay:relay.example.org:8702")
    web = route_of("relay:wss://match.example.org/r")
    assert of_routes([direct], KEY) == f"crowdgrad://192.0.2.7:8701/#{PIN}"
    assert (
        of_routes([direct, relay], KEY, "digits-1-ab12")
        == f"crowdgrad://192.0.2.7:8701/?also=relay:relay.example.org:8702&job=digits-1-ab12#{PIN}"
    )
    assert of_routes([relay], KEY) == f"crowdgrad:///?also=relay:relay.example.org:8702#{PIN}"
    assert of_routes([web], KEY) == f"crowdgrad:///?also=relay:wss://match.example.org/r#{PIN}"
    assert of_matchmaker(PAGE, KEY) == f"{PAGE}#{PIN}"
    assert of_matchmaker(f"{PAGE}#{'0' * 32}", KEY) == f"{PAGE}#{PIN}", "ours, not a stranger's"
    assert len(PIN) == 32
    assert fits(PIN, KEY)


@given(st.lists(ROUTES, min_size=1, max_size=MAX_ROUTES), st.binary(min_size=32, max_size=32), JOBS)
def test_what_is_written_is_read_again(routes: list[Route], public: bytes, job: str) -> None:
    link = of_routes(routes, public, job)
    assert read(link) == Link(routes=tuple(routes), key=pin_of(public), job=job or None)


def test_ways_that_do_not_fit_are_left_out_and_the_best_stay() -> None:
    long = [route_of(f"relay:wss://{'x' * 200}.org/{'%' * 40}{n}") for n in range(9)]
    link = of_routes(long, KEY)
    found = read(link)
    assert len(link) <= MAX_LINK
    assert found.key == PIN
    assert found.routes == tuple(long[: len(found.routes)])
    assert 0 < len(found.routes) < MAX_ROUTES


@given(st.binary(min_size=32, max_size=32))
def test_a_page_with_a_pin_is_read_again(public: bytes) -> None:
    found = read(of_matchmaker(PAGE, public))
    assert found == Link(job="K7Q-2MP", matchmaker="https://match.example.org", key=pin_of(public))


@pytest.mark.parametrize(
    "text",
    [f"CROWDGRAD://192.0.2.7:8701/#{PIN}", f"crowdgrad://192.0.2.7:8701#{PIN.upper()}"],
)
def test_case_does_not_matter(text: str) -> None:
    assert read(text) == Link(routes=(route_of("192.0.2.7:8701"),), key=PIN)


ALTERATIONS = st.tuples(
    st.sampled_from(["replace", "insert", "delete"]),
    st.integers(0, 10_000),
    st.sampled_from(string.printable + "é\u200b"),
)


def altered(link: str, how: str, place: int, sign: str) -> str:
    place %= len(link)
    rest = link[place:] if how == "insert" else link[place + 1 :]
    return link[:place] + ("" if how == "delete" else sign) + rest


@given(st.one_of(LINKS, st.just(f"{PAGE}#{PIN}")), ALTERATIONS)
@example(f"{PAGE}#{PIN}", ("replace", len(PAGE), "?"))
@example(f"{PAGE}#{PIN}", ("replace", len(PAGE), "&"))
@example(f"{PAGE}#{PIN}", ("replace", len(PAGE), "/"))
@example(f"{PAGE}#{PIN}", ("delete", len(PAGE), ""))
@example(f"crowdgrad://192.0.2.7:8701/#{PIN}", ("replace", 9, "/"))
def test_an_altered_link_is_refused_or_still_names_a_whole_key(
    link: str, alteration: tuple[str, int, str]
) -> None:
    text = altered(link, *alteration)
    assume(text != link)
    with contextlib.suppress(TargetError):
        assert names_a_key(read(text).key)


def names_a_key(key: str) -> bool:
    """The host's, and whoever answers, wherever, has to prove it; or one that nobody there has."""
    return len(key) == 32


@given(LINKS)
def test_a_link_that_was_cut_off_is_refused(link: str) -> None:
    for length in range(link.index("://") + 3, len(link)):
        with pytest.raises(TargetError):
            read(link[:length])


@given(st.text(max_size=200).map(lambda text: f"crowdgrad://{text}#{PIN}"))
def test_whatever_it_is_it_is_answered(text: str) -> None:
    with contextlib.suppress(TargetError):
        assert read(text).key == PIN


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("crowdgrad://192.0.2.7:8701/", "its end, # and the pin of the host's key, is missing"),
        ("crowdgrad://192.0.2.7:8701/#", "is missing"),
        (f"crowdgrad://192.0.2.7:8701/#{PIN[:31]}", "31 digits instead of 32"),
        (f"crowdgrad://192.0.2.7:8701/#{PIN}0", "33 digits instead of 32"),
        (f"crowdgrad://192.0.2.7:8701/#{PIN[:31]}g", "other signs instead of 32"),
        (f"{PAGE}#", "is missing"),
        (f"{PAGE}#top", "other signs instead of 32"),
        (f"{PAGE}#{PIN[:31]}", "31 digits"),
        (f"{PAGE}?{PIN}", "what follows the code makes no sense"),
        (f"crowdgrad:///#{PIN}", "no ways to the host"),
        (f"crowdgrad://192.0.2.7/#{PIN}", "a way to somebody is"),
        (f"crowdgrad://192.0.2.7:99999/#{PIN}", "a way to somebody is"),
        (f"crowdgrad://me@192.0.2.7:1/#{PIN}", "a way to somebody is"),
        (f"crowdgrad://[::1/#{PIN}", "makes no sense"),
        (f"crowdgrad://relay:a.org:1/#{PIN}", "a relay stands after also="),
        (f"crowdgrad://a.org:1/x#{PIN}", "something between"),
        (f"crowdgrad://a.org:1/?via=b:1#{PIN}", "'via' is nothing that a link says"),
        (f"crowdgrad://a.org:1/?job=a-long-id&job=another-id#{PIN}", "it names 2 jobs"),
        (f"crowdgrad://a.org:1/?job=K7Q-2MP#{PIN}", "looks like a join code"),
        (f"crowdgrad://a.org:1/?job=%00#{PIN}", "a job id has"),
        (f"crowdgrad://a:1/?{'&'.join(['also=b:1'] * 8)}#{PIN}", "9 ways"),
        (f"crowdgrad://a.org:1/ #{PIN}", "a space"),
        (f"crowdgrad://a.org:1/\n#{PIN}", "a line break"),
        (f"crowdgrad://{'a' * MAX_LINK}:1/#{PIN}", "longer than"),
        (f"crowdgrab://a.org:1/#{PIN}", "links begin with"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(text: str, reason: str) -> None:
    with pytest.raises(TargetError, match=reason) as refused:
        read(text)
    assert "Copy it again" in refused.value.advice
    assert str(refused.value).isprintable()
    assert len(refused.value.message) < 350


def test_a_page_without_a_pin_is_as_good_as_its_code() -> None:
    assert links.read(f"{PAGE}?from=mail").key == ""
