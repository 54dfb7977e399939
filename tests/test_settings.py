"""One table of settings: who wins, where a value came from, and what is refused."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from crowdgrad.errors import SettingError
from crowdgrad.settings import (
    ENVIRONMENT_PREFIX,
    WORKER_TOKEN_VARIABLE,
    Settings,
    child_environment,
    hours_of_day,
    load,
    resolve,
    worker_token,
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "somebody"))  # a real settings file must not matter
    return tmp_path


def source_of(name: str, overrides: dict[str, object], environment: dict[str, str]) -> str:
    _, rows = resolve(overrides, environment)
    return next(row.source for row in rows if row.name == name)


def test_the_command_line_beats_the_environment_beats_the_file_beats_the_default(
    home: Path,
) -> None:
    environment = {"CROWDGRAD_HOME": str(home)}
    assert resolve({}, environment)[0].cache_mb == 4096
    assert source_of("cache_mb", {}, environment) == "default"
    (home / "settings.toml").write_text("cache_mb = 1\nlease_s = 7\n")
    assert resolve({}, environment)[0].cache_mb == 1
    assert source_of("cache_mb", {}, environment) == str(home / "settings.toml")
    environment["CROWDGRAD_CACHE_MB"] = "2"
    assert resolve({}, environment)[0].cache_mb == 2
    assert source_of("cache_mb", {}, environment) == "environment CROWDGRAD_CACHE_MB"
    assert resolve({"cache_mb": 3}, environment)[0].cache_mb == 3
    assert source_of("cache_mb", {"cache_mb": 3}, environment) == "command line"
    assert resolve({"cache_mb": None}, environment)[0].cache_mb == 2
    settings = resolve({"cache_mb": 3}, environment)[0]
    assert (settings.home, settings.lease_s, type(settings.lease_s)) == (home, 7.0, float)


def test_every_setting_has_help_a_value_and_a_variable(home: Path) -> None:
    _, rows = resolve({"home": home}, {})
    assert [row.name for row in rows] == [row.name for row in fields(Settings)]
    for row in rows:
        assert row.help
        assert row.source
    changed = {"home": str(home), "matchmaker": "http://x", "name": "me", "walls": "all",
               "hours": "1:00-2:00", "only_causes": "yes", "trusted_only": "true",
               "only_when_idle": "yes", "on_battery": "yes",
               "encrypt": "always", "lan": "no", "metered": "yes", "share": "listen"}  # fmt: skip
    for row in fields(Settings):
        variable = ENVIRONMENT_PREFIX + row.name.upper()
        value = changed.get(row.name, "15" if row.name != "heartbeat_s" else "1.5")
        assert source_of(row.name, {}, {variable: value}).endswith(variable)


def test_the_home_folder_is_where_its_file_is_looked_for(home: Path) -> None:
    (home / "settings.toml").write_text('name = "from the file"')
    assert resolve({"home": str(home)}, {"CROWDGRAD_HOME": "elsewhere"})[0].name == "from the file"
    assert "~" not in str(resolve({"home": "~/some/where"}, {})[0].home)


def test_the_password_of_a_database_is_shown_to_nobody_and_handed_to_no_child(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "postgresql://matchmaker:p@ss:w0rd/1@db.example.org/crowdgrad"
    settings, rows = resolve({"home": home}, {"CROWDGRAD_DATABASE": url})
    assert settings.database == url
    shown = next(row.value for row in rows if row.name == "database")
    assert shown == "postgresql://matchmaker:…@db.example.org/crowdgrad"
    assert "w0rd" not in repr(settings)
    monkeypatch.setenv("CROWDGRAD_DATABASE", url)
    assert "CROWDGRAD_DATABASE" not in child_environment({})


def test_there_is_no_level_without_walls(home: Path) -> None:
    assert resolve({"home": home}, {})[0].walls == "best"
    for value in ("none", "off", ""):
        with pytest.raises(SettingError, match="Choose best or all"):
            Settings(walls=value)


def test_an_empty_variable_is_not_set(home: Path) -> None:
    environment = {"CROWDGRAD_CACHE_MB": "", "CROWDGRAD_HOME": ""}
    settings = resolve({}, environment)[0]
    assert settings.cache_mb == 4096
    assert settings.home == Settings().home.expanduser()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("colour = 'red'", "colour"),
        ("cache_mb = 'many'", "cache_mb"),
        ("cache_mb = 1.5", "cache_mb"),
        ("cache_mb = true", "cache_mb"),
        ("heartbeat_s = false", "heartbeat_s"),
        ("name = 5", "name"),
        ("name = ['a']", "name"),
        ("lease_s = nan", "lease_s"),
        ("lease_s = -1", "lease_s"),
        ("upload_mbps = -1", "upload_mbps"),
        ("download_mbps = nan", "download_mbps"),
        ("most_upload_mbps = -0.5", "most_upload_mbps"),
        ("most_download_mbps = inf", "most_download_mbps"),
        ("most_download_mbps = nan", "most_download_mbps"),
        ("metered = 'perhaps'", "metered"),
        ("metered = true", "metered"),
        ("share = 'yes'", "share"),
        ("share = false", "share"),
        ("share_port = -1", "share_port"),
        ("share_port = 65536", "share_port"),
        ("most_download_mb = 0.5", "most_download_mb"),
        ("only_causes = 'perhaps'", "only_causes"),
        ("trusted_only = 2", "trusted_only"),
        ("hours = '22'", "hours"),
        ("hours = '22-22'", "hours"),
        ("hours = '25-7'", "hours"),
        ("hours = '22:00'", "hours"),
        ("hours = '22:60-07:00'", "hours"),
        ("hours = '25:00-07:00'", "hours"),
        ("hours = '24:01-07:00'", "hours"),
        ("hours = '07:00-07:00'", "hours"),
        ("hours = '00:00-24:00'", "hours"),
        ("hours = 22", "hours"),
        ("cache_mb = 0", "cache_mb"),
        ("lease_s = [1]", "lease_s"),
        (f"lease_s = {10**400}", "lease_s"),
        ("this is not toml", "settings.toml"),
        ("[lease_s]\na = 1", "lease_s"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(home: Path, text: str, what: str) -> None:
    (home / "settings.toml").write_text(text)
    with pytest.raises(SettingError, match=what) as refused:
        resolve({"home": home}, {})
    assert refused.value.advice


@pytest.mark.parametrize(
    ("variable", "value"),
    [("CACHE_MB", "lots"), ("CACHE_MB", "1.5"), ("LEASE_S", "inf"), ("SILENCE_S", "soon")],
)
def test_a_variable_that_makes_no_sense_is_refused(home: Path, variable: str, value: str) -> None:
    with pytest.raises(SettingError, match=variable.lower()):
        resolve({"home": home}, {f"CROWDGRAD_{variable}": value})


def test_a_file_that_is_not_text_and_a_home_that_cannot_be_found(home: Path) -> None:
    (home / "settings.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingError, match="cannot be read"):
        resolve({"home": home}, {})
    with pytest.raises(SettingError, match="home"):
        resolve({"home": "~nobody-of-this-name/x"}, {})
    (home / "file").touch()
    with pytest.raises(SettingError, match="cannot be read"):
        resolve({"home": home / "file"}, {})


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("", None),
        ("22:00-07:00", (1320, 420)),
        ("9:30 – 12:00", (570, 720)),
        ("20:00-24:00", (1200, 0)),
        ("0:00-6:15", (0, 375)),
        ("22-7", (1320, 420)),
        ("9:30-24", (570, 0)),
    ],
)
def test_hours_are_minutes_of_the_day(text: str, minutes: tuple[int, int] | None) -> None:
    assert hours_of_day(text) == minutes
    assert Settings(hours=text).hours == text


@pytest.mark.parametrize(
    ("said", "means"),
    [("true", True), ("'Yes'", True), ("1", True), ("false", False), ("'no'", False)],
)
def test_a_flag_is_said_in_many_ways(home: Path, said: str, means: bool) -> None:
    (home / "settings.toml").write_text(f"only_causes = {said}")
    assert resolve({"home": home}, {})[0].only_causes is means
    variable = {"CROWDGRAD_TRUSTED_ONLY": said.strip("'")}
    assert resolve({"home": home}, variable)[0].trusted_only is means


def test_silence_is_at_least_two_heartbeats(home: Path) -> None:
    assert resolve({"home": home, "heartbeat_s": 5.0, "silence_s": 10.0}, {})[0].silence_s == 10
    with pytest.raises(SettingError, match="two heartbeats"):
        resolve({"home": home, "heartbeat_s": 5.1, "silence_s": 10.0}, {})


def test_load_reads_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROWDGRAD_HOME", str(home))
    monkeypatch.setenv("CROWDGRAD_NAME", "Ada")
    monkeypatch.delenv("CROWDGRAD_LAN", raising=False)
    assert load({"cache_mb": 5}) == Settings(home=home, name="Ada", cache_mb=5)


def test_a_secret_is_for_one_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WORKER_TOKEN_VARIABLE, raising=False)
    assert worker_token() is None
    monkeypatch.setenv(WORKER_TOKEN_VARIABLE, "ours")
    monkeypatch.setenv("SOMETHING_ELSE", "kept")
    assert worker_token() == "ours"
    assert WORKER_TOKEN_VARIABLE not in child_environment({})
    assert child_environment({})["SOMETHING_ELSE"] == "kept"
    assert child_environment({WORKER_TOKEN_VARIABLE: "its"})[WORKER_TOKEN_VARIABLE] == "its"
