"""What this machine would work for, put together from what its owner said: here and now, in the
settings, and of hosts in the past."""

from __future__ import annotations

from collections.abc import Iterable

from crowdgrad.domain.matching import MAX_HOSTS, Wants
from crowdgrad.errors import SettingError
from crowdgrad.volunteer.hosts import Known

TRUSTED = ("trusted", "agreed")
"""What the owner has said of a host that may be helped without a question."""


def wants(
    *,
    job: str | None = None,
    causes: Iterable[str] = (),
    only_causes: bool = False,
    hosts: Iterable[str] = (),
    trusted: frozenset[str] | None = None,
) -> Wants:
    """`hosts`: fingerprints of the only ones, none named: any; `trusted`: no others than these.

    Raises SettingError for what nobody could fulfil.
    """
    liked, only = tuple(dict.fromkeys(causes)), _only(frozenset(hosts), trusted)
    if only_causes and not liked:
        raise SettingError(
            "Only some causes are to be helped, but none is named.",
            advice="Name them: --cause NAME, or the setting causes.",
        )
    try:
        return Wants(job=job, hosts=only, causes=liked, only_causes=only_causes)
    except ValueError as error:
        raise SettingError(f"That cannot be asked for: {error}.", advice="Name fewer.") from None


def _only(hosts: frozenset[str], trusted: frozenset[str] | None) -> frozenset[str] | None:
    if trusted is None:
        return hosts or None
    if not trusted:
        raise SettingError(
            "Only hosts that you trust are to be helped, but you trust none yet.",
            advice="`crowdgrad hosts trust KEY` puts one on your list.",
        )
    if hosts and not hosts & trusted:
        raise SettingError(
            "None of the hosts you named is one you trust.",
            advice="Leave out --trusted-only, or `crowdgrad hosts trust KEY`.",
        )
    return hosts & trusted or trusted


def named(text: str) -> tuple[str, ...]:
    """The causes of the setting, commas between them."""
    return tuple(cause for part in text.split(",") if (cause := part.strip()))


def trusted(listed: frozenset[str], known: Iterable[Known]) -> frozenset[str]:
    """Whom the owner trusts: the setting's, then those seen last, as many as can be named."""
    rows = list(known)
    blocked = {host.key for host in rows if host.status == "blocked"}
    seen = sorted((host for host in rows if host.status in TRUSTED), key=lambda host: -host.last)
    order = dict.fromkeys([*sorted(listed), *(host.key for host in seen)])
    return frozenset([key for key in order if key not in blocked][:MAX_HOSTS])
