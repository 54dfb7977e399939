"""Keys: made once, kept private, and no signature but the right one is believed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.errors import SettingError, TargetError, TurnedAway
from crowdgrad.net import identity, phrase
from crowdgrad.net.identity import guest, id_of, load_or_make, recover, verify


def test_a_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    home = tmp_path / "deep" / "home"
    first = load_or_make(home)
    assert load_or_make(home).public == first.public
    assert stat.S_IMODE((home / "key").stat().st_mode) == 0o600
    assert [file.name for file in home.iterdir()] == ["key"]
    assert first.id == id_of(first.public)
    assert len(first.id) == 16


def test_first_starts_at_once_agree_on_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        keys = {made.public for made in threads.map(lambda n: load_or_make(tmp_path), range(32))}
    assert len(keys) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_first_processes_at_once_agree_on_one_key(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from crowdgrad.net.identity import load_or_make;"
        "sys.stdin.read(); print(load_or_make(Path(sys.argv[1])).id)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "home")]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    said = {process.communicate(timeout=20)[0] for process in started}
    assert len(said) == 1
    assert said == {f"{load_or_make(tmp_path / 'home').id}\n"}


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_a_damaged_key_is_named_with_advice(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(SettingError, match=f"{len(content)} bytes instead of 32") as refused:
        load_or_make(tmp_path)
    assert "Move it away" in refused.value.advice
    assert (tmp_path / "key").read_bytes() == content


def test_a_key_that_cannot_be_read_or_made(tmp_path: Path) -> None:
    (tmp_path / "key").mkdir()
    with pytest.raises(SettingError, match="cannot be read"):
        load_or_make(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(SettingError) as refused:
        load_or_make(tmp_path / "file" / "home")
    assert "CROWDGRAD_HOME" in refused.value.advice


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder nobody can write to")
def test_a_home_that_cannot_be_written_to() -> None:
    with pytest.raises(SettingError, match="No key can be made"):
        load_or_make(Path("/proc/self/home"))


def test_only_the_right_signature_is_believed() -> None:
    me, other = guest(), guest()
    signature = me.sign(b"challenge")
    assert verify(me.public, b"challenge", signature) == me.id
    for public, challenge, signed in (
        (other.public, b"challenge", signature),
        (me.public, b"another challenge", signature),
        (me.public, b"challenge", other.sign(b"challenge")),
        (me.public, b"challenge", signature[:-1]),
        (me.public[:-1], b"challenge", signature),
        (b"", b"challenge", b""),
    ):
        with pytest.raises(TurnedAway):
            verify(public, challenge, signed)


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_any_bytes_are_turned_away(public: bytes, signature: bytes) -> None:
    with pytest.raises(TurnedAway):
        verify(public, b"challenge", signature)


def test_a_signature_is_for_joining_only() -> None:
    me = guest()
    assert me.sign(b"x") != me._key.sign(b"x")


# -- brought back from words ------------------------------------------------------------------


def kept(home: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in home.iterdir()}


def test_words_bring_a_key_back_on_another_machine(tmp_path: Path) -> None:
    first = load_or_make(tmp_path / "here")
    words = " ".join(first.phrase)
    again = recover(tmp_path / "there" / "deep", words.upper())
    assert again.public == first.public
    assert load_or_make(tmp_path / "there" / "deep").public == first.public
    assert kept(tmp_path / "there" / "deep") == kept(tmp_path / "here")
    assert stat.S_IMODE((tmp_path / "there" / "deep" / "key").stat().st_mode) == 0o600
    assert recover(tmp_path / "here", words).public == first.public, "it is there already"


def test_another_key_is_not_lost(tmp_path: Path) -> None:
    keys = [guest(str(number)) for number in range(4)]
    words = [" ".join(key.phrase) for key in keys]
    recover(tmp_path, words[0])
    before = kept(tmp_path)
    with pytest.raises(SettingError, match="Another key is kept") as refused:
        recover(tmp_path, words[1])
    assert "--replace" in refused.value.advice
    assert kept(tmp_path) == before
    for one in words[1:]:
        recover(tmp_path, one, replace=True)
    raw = [phrase.to_key(one) for one in words]
    assert kept(tmp_path) == {
        "key": raw[3], "key.old": raw[0], "key.old-2": raw[1], "key.old-3": raw[2],
    }  # fmt: skip
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_damaged_key_is_put_beside_too(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"torn")
    words = " ".join(guest("me").phrase)
    with pytest.raises(SettingError, match="Another key"):
        recover(tmp_path, words)
    assert recover(tmp_path, words, replace=True).id == load_or_make(tmp_path).id
    assert kept(tmp_path)["key.old"] == b"torn"


def test_wrong_words_change_nothing(tmp_path: Path) -> None:
    with pytest.raises(TargetError):
        recover(tmp_path / "home", "nothing like that", replace=True)
    assert not (tmp_path / "home").exists()


def test_of_recovering_and_a_first_start_one_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that was made between looking and writing is not written over, nor taken for ours."""
    me = guest("me")
    read = identity._read

    def as_if_none(file: Path) -> bytes | None:
        monkeypatch.setattr(identity, "_read", read)
        load_or_make(file.parent)
        return None

    monkeypatch.setattr(identity, "_read", as_if_none)
    with pytest.raises(SettingError, match="Another key"):
        recover(tmp_path, " ".join(me.phrase))
    assert [file.name for file in tmp_path.iterdir()] == ["key"]
    assert load_or_make(tmp_path).id != me.id
