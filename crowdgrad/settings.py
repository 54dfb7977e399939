"""Every setting in one table, and the only reader of the environment.

A value comes from the command line, else from the environment (`CROWDGRAD_<NAME>`; empty is the
same as not set), else from the settings file (`settings.toml` in the home folder), else from the
default below. The command `crowdgrad settings` prints each with its source.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from crowdgrad.domain.manners import LEAST_SHARE, MOST_THREADS, minutes_of
from crowdgrad.errors import SettingError
from crowdgrad.net.messages import MAX_SILENCE_S

ENVIRONMENT_PREFIX = "CROWDGRAD_"
MAX_NAME = 64
WALL_LEVELS = ("best", "all")
"""There is no level without walls."""
ENCRYPTIONS = ("away", "always")
METERED = ("auto", "yes", "no")
SHARING = ("no", "dial", "listen")
MAX_PORT = 65535
WORKER_TOKEN_VARIABLE = "CROWDGRAD_WORKER_TOKEN"  # noqa: S105 (a name, not a secret)
"""How a host hands its own worker the one-time token that makes it worker 0."""
WORKER_SEED_VARIABLE = "CROWDGRAD_WORKER_SEED"
"""How a host gives the volunteers it starts the same key in every life of a run."""

SERVER_SECRET_VARIABLE = "CROWDGRAD_SERVER_SECRET"  # noqa: S105 (a name, not a secret)
"""How a host gives the parameter servers it starts the secret they prove to each other."""

DATABASE_VARIABLE = "CROWDGRAD_DATABASE"
"""Where the password of a matchmaker's database may stand: no list of processes shows it."""


_PASSWORD = re.compile(r"(://[^:/@]*):.*@")
_FLAGS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


def _setting(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    home: Path = _setting(
        Path("~/.crowdgrad"), "where keys, downloaded data sets and chunks are kept"
    )
    matchmaker: str = _setting(
        "http://127.0.0.1:8700",
        "where `crowdgrad work` looks for jobs unless told otherwise",
    )
    name: str = _setting("", "the name others see; empty: one made from the key")
    trusted_hosts: str = _setting(
        "", "keys of hosts to help without a question, 16 hexadecimal digits each, commas between"
    )
    walls: str = _setting(
        "best",
        "`best`: work behind the walls this machine has; `all`: only if every wall holds",
    )
    memory_mb: int = _setting(0, "the most memory a job may take here; 0: half of what there is")
    cpu: int = _setting(
        50, "how much of the time it computes while somebody uses this machine, in percent"
    )
    cpu_idle: int = _setting(100, "… while nobody does, or nobody can say")
    threads: int = _setting(1, "how many cores a batch may use")
    only_when_idle: bool = _setting(False, "rest while somebody uses this machine")
    idle_after_s: float = _setting(
        300.0, "how long nobody must have touched this machine for it to be idle"
    )
    on_battery: bool = _setting(False, "work on battery, too")
    hours: str = _setting(
        "", "when this machine helps, in its own time: 22:00-07:00; empty: at any time"
    )
    causes: str = _setting(
        "", "what it helps before anything else, commas between, the most liked first"
    )
    only_causes: bool = _setting(False, "help nothing else than these causes")
    trusted_only: bool = _setting(False, "help only hosts that you trust")
    most_download_mb: int = _setting(
        0, "how much data a job may make this machine fetch; 0: as much as it needs"
    )
    download_mbps: float = _setting(0.0, "how fast data comes in, in Mbit/s; 0: as measured")
    upload_mbps: float = _setting(0.0, "how fast data goes out, in Mbit/s; 0: not known")
    most_download_mbps: float = _setting(
        0.0, "the most that may come in, over all connections of `crowdgrad work`; 0: no cap"
    )
    most_upload_mbps: float = _setting(
        0.0, "the most that may go out, over all connections of `crowdgrad work`; 0: no cap"
    )
    metered: str = _setting(
        "auto", "whether this network is paid by the byte; `auto`: what the system says"
    )
    share: str = _setting(
        "dial",
        "`no`: data comes from the host alone; `dial`: it is exchanged with other volunteers; "
        "`listen`: they may dial this machine, too, and learn its address",
    )
    share_port: int = _setting(
        0, "where other volunteers may dial this machine, with share `listen`; 0: any free port"
    )
    cache_mb: int = _setting(4096, "how much disk the chunks of data sets may take")
    encrypt: str = _setting(
        "away",
        "`away`: whatever leaves this machine is encrypted; `always`: also what stays on it",
    )
    lan: bool = _setting(
        True, "look for hosts on the local network, and let a host be found there (mDNS)"
    )
    heartbeat_s: float = _setting(
        2.0, "how often each side of a connection says that it is still there"
    )
    silence_s: float = _setting(
        10.0, "how long a connection may be silent before it is taken for dead"
    )
    lease_s: float = _setting(
        20.0, "how long a volunteer may take for a unit before it is offered to another"
    )
    reconnect_s: float = _setting(
        120.0, "how long a volunteer keeps trying to reach a host that went away"
    )
    checkpoint_s: float = _setting(
        5.0, "how often a host writes down how far it has come, to go on from after a crash"
    )
    exchanges: int = _setting(
        8, "how many large updates or parameters a host has under way at once; the rest wait"
    )
    secret_file: str = _setting(
        "", "the file with the secret that a host and its parameter servers elsewhere share"
    )
    database: str = field(
        default="",
        repr=False,  # it may hold a password
        metadata={"help": "what a matchmaker remembers in; empty: a file in the home folder"},
    )

    def __post_init__(self) -> None:
        for name in ("cache_mb", "heartbeat_s", "silence_s", "lease_s", "reconnect_s",
                     "checkpoint_s", "exchanges"):  # fmt: skip
            if not 0 < getattr(self, name) < 1e9:
                raise SettingError(
                    f"setting {name} is {getattr(self, name)}.", advice="Give a positive number."
                )
        if len(self.name) > MAX_NAME or not self.name.isprintable():
            raise SettingError(
                f"setting name is {self.name[:70]!r}.",
                advice=f"Give at most {MAX_NAME} printable characters.",
            )
        if self.walls not in WALL_LEVELS:
            raise SettingError(
                f"setting walls is {self.walls[:70]!r}.",
                advice=f"Choose {' or '.join(WALL_LEVELS)}; `crowdgrad doctor` tells which hold.",
            )
        if self.encrypt not in ENCRYPTIONS:
            raise SettingError(
                f"setting encrypt is {self.encrypt[:70]!r}.",
                advice=f"Choose {' or '.join(ENCRYPTIONS)}; it cannot be switched off.",
            )
        self._check_network()
        if not 0 <= self.memory_mb < 1e9:
            raise SettingError(
                f"setting memory_mb is {self.memory_mb}.", advice="Give megabytes, or 0 for half."
            )
        self._check_manners()
        for name in ("most_download_mb", "download_mbps", "upload_mbps"):
            if not 0 <= getattr(self, name) < 1e9:
                raise SettingError(
                    f"setting {name} is {getattr(self, name)}.",
                    advice="Give a number from 0 on; 0 stands for no limit, or not known.",
                )
        hours_of_day(self.hours)
        self._check_silence()

    def _check_manners(self) -> None:
        least = round(100 * LEAST_SHARE)
        for name in ("cpu", "cpu_idle"):
            if not least <= getattr(self, name) <= 100:
                raise SettingError(
                    f"setting {name} is {getattr(self, name)}.",
                    advice=f"Give {least} to 100 percent; to rest instead: only_when_idle.",
                )
        if not 1 <= self.threads <= MOST_THREADS:
            raise SettingError(
                f"setting threads is {self.threads}.", advice=f"Give 1 to {MOST_THREADS}."
            )
        if not 0 <= self.idle_after_s < 1e9:
            raise SettingError(
                f"setting idle_after_s is {self.idle_after_s}.", advice="Give seconds from 0 on."
            )

    def _check_network(self) -> None:
        for name in ("most_download_mbps", "most_upload_mbps"):
            if not 0 <= getattr(self, name) < 1e9:
                raise SettingError(
                    f"setting {name} is {getattr(self, name)}.",
                    advice="Give Mbit/s, or 0 for no cap.",
                )
        if self.metered not in METERED:
            raise SettingError(
                f"setting metered is {self.metered[:70]!r}.",
                advice='Choose "auto", "yes" or "no"; auto asks the system.',
            )
        if self.share not in SHARING:
            raise SettingError(
                f"setting share is {self.share[:70]!r}.",
                advice='Choose "no", "dial" or "listen"; docs/volunteer.md tells them apart.',
            )
        if not 0 <= self.share_port <= MAX_PORT:
            raise SettingError(
                f"setting share_port is {self.share_port}.",
                advice=f"Give a port up to {MAX_PORT}, or 0 for any free one.",
            )

    def _check_silence(self) -> None:
        if self.silence_s > MAX_SILENCE_S:
            raise SettingError(
                f"silence_s is {self.silence_s}.", advice=f"Give at most {MAX_SILENCE_S:g} seconds."
            )
        if self.silence_s < 2 * self.heartbeat_s:
            raise SettingError(
                f"silence_s {self.silence_s} is less than two heartbeats of {self.heartbeat_s} s.",
                advice="Raise silence_s or lower heartbeat_s.",
            )


def hours_of_day(text: str, called: str = "setting hours") -> tuple[int, int] | None:
    """First and last minute of the day that `hours` names; None: it names none.

    `called`: where it was said. Raises SettingError.
    """
    try:
        return minutes_of(text)
    except ValueError:
        raise SettingError(
            f"{called} is {text[:70]!r}.",
            advice="Write from when to when, e.g. 22:00-07:00 or 22-7; leave it out for the whole "
            "day.",
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sourced:
    """One setting's value and where it came from."""

    name: str
    value: str
    source: str
    help: str


def load(overrides: Mapping[str, object] | None = None) -> Settings:
    return resolve(overrides or {}, os.environ)[0]


def sourced(overrides: Mapping[str, object]) -> list[Sourced]:
    """Every setting in force, with its source."""
    return resolve(overrides, os.environ)[1]


def resolve(
    overrides: Mapping[str, object], environment: Mapping[str, str]
) -> tuple[Settings, list[Sourced]]:
    """The settings in force, and each with its source. Raises SettingError."""
    given = {name: value for name, value in overrides.items() if value is not None}
    environment = {name: value for name, value in environment.items() if value}
    home = Path(str(given.get("home") or environment.get("CROWDGRAD_HOME") or Settings().home))
    file = _expand(home) / "settings.toml"
    written = _read(file)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for row in fields(Settings):
        variable = ENVIRONMENT_PREFIX + row.name.upper()
        for source, table, key in (
            ("command line", given, row.name),
            (f"environment {variable}", environment, variable),
            (str(file), written, row.name),
        ):
            if key in table:
                values[row.name] = _convert(row.name, table[key], source)
                sources[row.name] = source
                break
    values["home"] = _expand(values.get("home", Settings().home))
    settings = Settings(**values)
    return settings, [
        Sourced(
            name=row.name,
            value=_PASSWORD.sub(r"\1:…@", str(getattr(settings, row.name))),
            source=sources.get(row.name, "default"),
            help=row.metadata["help"],
        )
        for row in fields(Settings)
    ]


def worker_token() -> str | None:
    """The token of worker 0, where this process was started as one."""
    return os.environ.get(WORKER_TOKEN_VARIABLE)


def worker_seed() -> str | None:
    """What the key of a host's own volunteer is made from, where this process is one."""
    return os.environ.get(WORKER_SEED_VARIABLE)


def server_secret() -> str | None:
    """The secret shared with the host, where this process is a parameter server it started."""
    return os.environ.get(SERVER_SECRET_VARIABLE)


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process we start: ours, without secrets meant for us, plus `extra`."""
    ours = (WORKER_TOKEN_VARIABLE, WORKER_SEED_VARIABLE, SERVER_SECRET_VARIABLE, DATABASE_VARIABLE)
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return {**kept, **extra}


TRAINER_VARIABLES = (
    "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPATH",
    "SYSTEMROOT", "VIRTUAL_ENV",
)  # fmt: skip
"""What a trainer needs to find its libraries. Nothing else of ours is its business."""


def trainer_environment() -> dict[str, str]:
    """The environment of the process that runs a stranger's program: no secrets, one thread."""
    kept = {name: os.environ[name] for name in TRAINER_VARIABLES if name in os.environ}
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**kept, **single, "PYTHONDONTWRITEBYTECODE": "1"}


def _expand(home: Path) -> Path:
    try:
        return home.expanduser()
    except RuntimeError as error:
        raise SettingError(f"home is {home}: {error}", advice="Give a whole path.") from None


def _read(file: Path) -> Mapping[str, object]:
    try:
        table = tomllib.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SettingError(
            f"{file} cannot be read: {error}.", advice="Mend or remove it."
        ) from None
    known = {row.name for row in fields(Settings)}
    unknown = sorted(set(table) - known)
    if unknown:
        raise SettingError(
            f"{file} sets {', '.join(unknown)}, which is no setting.",
            advice="`crowdgrad settings` lists them all.",
        )
    return table


def _convert(name: str, value: object, source: str) -> object:
    default = getattr(Settings(), name)
    kind = Path if isinstance(default, Path) else type(default)
    accepted: dict[type, tuple[type, ...]] = {int: (int, str), float: (int, float, str)}
    if kind is bool:
        return _flag(name, value, source)
    try:
        if isinstance(value, bool) or not isinstance(value, accepted.get(kind, (str, Path))):
            raise TypeError
        return kind(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise SettingError(
            f"{source} sets {name} to {value!r}, which is no {kind.__name__}.",
            advice="`crowdgrad settings` shows the defaults.",
        ) from None


def _flag(name: str, value: object, source: str) -> bool:
    said = value if isinstance(value, bool) else _FLAGS.get(str(value).strip().lower())
    if said is None:
        raise SettingError(
            f"{source} sets {name} to {value!r}, which is neither yes nor no.",
            advice="Write true or false.",
        )
    return said
