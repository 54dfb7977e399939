"""What a host may be told of servers, and what it tells others."""

from __future__ import annotations

from pathlib import Path

import pytest

from crowdgrad.domain.work import Version, VolunteerId
from crowdgrad.errors import ChildDied, SettingError
from crowdgrad.host.servers import proofs
from crowdgrad.host.servers.fleet import MAX_DEATHS, START_S, OurOwn
from crowdgrad.host.servers.hiring import Hired, Wanted, _free_ports
from crowdgrad.recipes.async_sgd import AsyncSGD
from crowdgrad.recipes.base import Recipe
from crowdgrad.recipes.synchronous import Synchronous
from tests.host import small
from tests.host.servers.town import begins

SPEC = small.spec(size=64)
SECRET = b"0123456789abcdef"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"own": 2, "elsewhere": ("a:1",), "secret": SECRET}, "at once"),
        ({"own": 65}, "65 servers"),
        ({"elsewhere": ("a:1",)}, "must know"),
        ({"elsewhere": ("a",), "secret": SECRET}, "host:port"),
        ({"own": 2, "average_every": 0}, "average-every"),
    ],
)
def test_nonsense_is_refused(said: dict[str, object], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Wanted(**said)  # type: ignore[arg-type]


def hired(wanted: Wanted, recipe: Recipe | None = None) -> Hired:
    recipe = recipe or AsyncSGD(lr=0.5, batch_size=10)
    servers = Hired(wanted, small.job(recipe=recipe), SPEC, recipe, host="127.0.0.1")
    servers.hold(begins(SPEC), recipe.server_rule(), Version(incarnation=0, count=0))
    return servers


def test_a_volunteer_is_told_of_every_part_with_a_token_of_its_own() -> None:
    servers = hired(Wanted(elsewhere=("a:1", "b:2"), secret=SECRET))
    servers.parameters.joined(VolunteerId("ada"))
    one, two = servers.places(VolunteerId("ada"))
    assert (one.address, one.start, one.stop, one.update_stop) == ("a:1", 0, 32, 32)
    assert (two.address, two.start, two.stop, two.update_stop) == ("b:2", 32, 64, 64)
    assert one.admission == two.admission > 0
    token = proofs.token(SECRET, small.job().id, VolunteerId("ada"), one.admission)
    assert one.token == two.token == token
    assert token not in repr(one)
    assert one.token != servers.places(VolunteerId("ben"))[0].token


def test_our_own_are_where_the_host_is() -> None:
    places = hired(Wanted(own=3)).places(VolunteerId("ada"))
    assert {place.address.rpartition(":")[0] for place in places} == {"0.0.0.0"}
    assert len({place.address for place in places}) == 3


def test_with_copies_a_volunteer_is_told_of_one() -> None:
    servers = hired(Wanted(own=2, hold="copies"))
    servers.parameters.joined(VolunteerId("ada"))
    (place,) = servers.places(VolunteerId("ada"))
    assert (place.start, place.stop) == (0, 64)


def test_copies_know_no_rounds() -> None:
    with pytest.raises(SettingError, match="rounds"):
        hired(Wanted(own=2, hold="copies"), Synchronous(batch_size=10))


@pytest.mark.parametrize("content", [None, b"", b"short", b"x" * 5000])
def test_a_secret_must_be_there_and_be_one(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingError, match="secret"):
        proofs.read_secret(file)


def test_a_secret_is_what_the_file_says_without_the_line_end(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    assert proofs.read_secret(tmp_path / "secret") == SECRET


def test_no_proof_serves_for_another() -> None:
    job = small.job().id
    found = {
        proofs.of_host(SECRET, job, b"a" * 32, b"b" * 32),
        proofs.of_host(SECRET, job, b"b" * 32, b"a" * 32),
        proofs.of_server(SECRET, job, b"a" * 32, b"b" * 32),
        proofs.of_host(b"another secret..", job, b"a" * 32, b"b" * 32),
        bytes.fromhex(proofs.token(SECRET, job, VolunteerId("a"), 1)),
        bytes.fromhex(proofs.token(SECRET, job, VolunteerId("a"), 2)),
    }
    assert len(found) == 6


def test_a_server_of_ours_that_will_not_run_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Dead:
        code = 1

        def __init__(self, *args: object, **options: object) -> None:
            begun.append(args)

        def last_words(self) -> str:
            return "no memory"

    begun: list[object] = []
    monkeypatch.setattr("crowdgrad.host.servers.fleet.Child", Dead)
    post = OurOwn("0.0.0.0", 1234, secret="s", log=tmp_path / "log")
    assert post.address == "127.0.0.1:1234"
    for _ in range(MAX_DEATHS):
        post.tend()
    with pytest.raises(ChildDied, match="no memory"):
        post.tend()
    assert len(begun) == MAX_DEATHS


def test_no_two_of_our_own_get_the_same_port() -> None:
    """Held until all are picked: the system gives one that is free again to the next who asks."""
    ports = _free_ports("127.0.0.1", 16)
    assert len(set(ports)) == 16


def test_a_server_of_ours_is_stuck_when_it_should_be_there_by_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Runs:
        code: int | None = None

        def __init__(self, *args: object, **options: object) -> None: ...

    now = [0.0]
    monkeypatch.setattr("crowdgrad.host.servers.fleet.Child", Runs)
    monkeypatch.setattr("crowdgrad.host.servers.fleet.time.monotonic", lambda: now[0])
    post = OurOwn("0.0.0.0", 1234, secret="s", log=tmp_path / "log")
    assert not post.stuck
    post.tend()
    now[0] = START_S
    assert not post.stuck
    now[0] = START_S + 1
    assert post.stuck
    Runs.code = 1
    assert not post.stuck  # it is begun again without being ended


def test_a_secret_is_not_written_down() -> None:
    assert SECRET.decode() not in repr(Wanted(elsewhere=("a:1",), secret=SECRET))
