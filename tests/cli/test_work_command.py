"""`crowdgrad work`: what is said on the command line reaches whoever works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crowdgrad.cli import work
from crowdgrad.cli.main import parser
from crowdgrad.domain.manners import Limits, Profile
from crowdgrad.errors import SettingError
from crowdgrad.settings import Settings
from crowdgrad.volunteer import serve
from crowdgrad.volunteer.events import Event
from crowdgrad.volunteer.outcome import Outcome


def asked(
    monkeypatch: pytest.MonkeyPatch, home: Path, *words: str
) -> tuple[serve.Options, Settings]:
    found: list[Any] = []

    async def record(options: serve.Options, settings: Settings, *rest: Any, **how: Any) -> None:
        found.append((options, settings))

    monkeypatch.setattr(serve, "work", record)
    args = parser().parse_args(["work", *words, "--home", str(home), "--plain"])
    args.as_program = False
    assert work.run(args) == 0
    (options, settings) = found[0]
    return options, settings


def test_nothing_said_is_whoever_needs_help(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options, settings = asked(monkeypatch, tmp_path)
    assert (options.target, options.causes, options.hosts) == (None, (), ())
    assert (settings.hours, settings.only_causes, settings.trusted_only) == ("", False, False)


def test_wishes_of_the_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text('hours = "1:00-2:00"\ncauses = "games"')
    options, settings = asked(
        monkeypatch, tmp_path, "--cause", "climate", "--cause", "medicine, rare", "--only-causes",
        "--host-key", "a" * 16, "--host-key", "b" * 16, "--trusted-only", "--hours", "22:00-07:00",
    )  # fmt: skip
    assert options.causes == ("climate", "medicine, rare")
    assert options.hosts == ("a" * 16, "b" * 16)
    assert (settings.only_causes, settings.trusted_only) == (True, True)
    assert settings.hours == "22:00-07:00"


def test_what_is_not_said_is_as_the_settings_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = 'hours = "1:00-2:00"\ncauses = "games"\nonly_causes = true\ntrusted_only = true'
    (tmp_path / "settings.toml").write_text(text)
    options, settings = asked(monkeypatch, tmp_path, "https://match.example.org/j/K7Q-2MP")
    assert options.target == "https://match.example.org/j/K7Q-2MP"
    assert (settings.only_causes, settings.trusted_only) == (True, True)
    assert (settings.hours, settings.causes) == ("1:00-2:00", "games")


def test_caps_and_sharing_are_settings_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = 'share = "listen"\nmost_upload_mbps = 7\nmost_download_mbps = 8'
    (tmp_path / "settings.toml").write_text(text)
    _, settings = asked(monkeypatch, tmp_path)
    assert (settings.share, settings.share_port) == ("listen", 0)
    assert (settings.most_upload_mbps, settings.most_download_mbps) == (7.0, 8.0)
    _, settings = asked(
        monkeypatch, tmp_path, "--share", "no", "--upload", "0.5", "--download", "0"
    )
    assert settings.share == "no"
    assert (settings.most_upload_mbps, settings.most_download_mbps) == (0.5, 0.0)


def test_limits_of_a_file_count_before_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "settings.toml").write_text("on_battery = true\nmemory_mb = 100\ncpu = 90")
    assert asked(monkeypatch, tmp_path)[0].limits is None
    limits = Limits(
        in_use=Profile(share=0.1, threads=1), idle=Profile(share=0.7, threads=2), hours="1:00-2:00",
        memory_mb=512, most_upload_mbps=3.0,
    )  # fmt: skip
    file = tmp_path / "limits.json"
    file.write_bytes(msgspec.json.encode(limits))
    options, settings = asked(monkeypatch, tmp_path, "--limits", str(file))
    assert serve.governor_for(options, settings).limits == limits
    assert (settings.memory_mb, settings.hours, settings.most_upload_mbps) == (512, "1:00-2:00", 3)
    assert not settings.on_battery, "what the file has by default counts, too"


@pytest.mark.parametrize("text", ["{", '{"hours": "late"}', '{"memory_mb": -1}', "[]"])
def test_a_file_without_limits_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "limits.json"
    file.write_text(text)
    with pytest.raises(SettingError, match=r"limits\.json holds no limits"):
        asked(monkeypatch, tmp_path, "--limits", str(file))


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "fast", "1e9"])
def test_a_cap_that_is_none_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["work", f"--upload={text}"])
    assert "number of Mbit/s" in capsys.readouterr().err


def test_hours_that_are_none_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for text in ("tonight", "22:00-22:00"):
        with pytest.raises(SettingError, match=f" --hours is '{text}'"):
            asked(monkeypatch, tmp_path, "--hours", text)
    assert asked(monkeypatch, tmp_path, "--hours", "22-7")[1].hours == "22-7"
    (tmp_path / "settings.toml").write_text('hours = "tonight"')
    with pytest.raises(SettingError, match="setting hours is 'tonight'"):
        asked(monkeypatch, tmp_path)


def test_what_is_to_stay_on_the_screen_stays() -> None:
    kept: list[str] = []
    watch = work._staying(kept.append)
    watch(Event(kind="state", text="Working."))
    watch(Event(kind="trouble", text="Turned away.", stays=True))
    watch(Event(kind="trouble", text="Trying again."))
    assert kept == ["Turned away."]


def test_two_things_do_not_go_to_standard_output(tmp_path: Path) -> None:
    args = parser().parse_args(["work", "--home", str(tmp_path), "--events", "--json", "-"])
    with pytest.raises(SettingError, match="both write to standard output"):
        work.run(args)


def test_where_the_api_is_announced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options, _ = asked(monkeypatch, tmp_path)
    assert (options.announce, options.http_port) == (None, 0)
    file = tmp_path / "work.json"
    options, _ = asked(monkeypatch, tmp_path, "--announce", str(file), "--http-port", "8799")
    assert (options.announce, options.http_port) == (file, 8799)


def test_the_json_names_each_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = Outcome(
        reason="done", left=False, samples=3, credit=6.0, title="Digits", host="ab" * 8,
        code="K7Q-2MP", share=0.25,
    )  # fmt: skip

    async def ended(options: Any, settings: Any, stop: Any, watch: Any, outcomes: list[Outcome],
                    **how: Any) -> None:  # fmt: skip
        outcomes.append(done)

    monkeypatch.setattr(serve, "work", ended)
    file = tmp_path / "out.json"
    args = parser().parse_args(["work", "--home", str(tmp_path), "--plain", "--json", str(file)])
    assert work.run(args) == 0
    assert json.loads(file.read_text()) == {"jobs": [{
        "reason": "done", "left": False, "samples": 3, "credit": 6.0, "title": "Digits",
        "host": "ab" * 8, "code": "K7Q-2MP", "share": 0.25,
    }]}  # fmt: skip


def test_trusted_and_trusted_only_are_two_things(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    args = parser().parse_args(["work", "--trusted-only"])
    assert (args.trusted, args.trusted_only) == (None, True)
    args = parser().parse_args(["work", "--trusted", "model:task"])
    assert (args.trusted, args.trusted_only) == ("model:task", False)
