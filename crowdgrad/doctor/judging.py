"""What measurements mean: each in, findings out. Nothing here looks at anything itself."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict

from crowdgrad.doctor import seen
from crowdgrad.doctor.finding import Finding, State, Value
from crowdgrad.doctor.measuring import INSTALL
from crowdgrad.doctor.multicast import PORT
from crowdgrad.net.introduction import SKEW_S
from crowdgrad.net.nearby import Nearby
from crowdgrad.planner import nat
from crowdgrad.volunteer.sandbox.examination import Examination
from crowdgrad.volunteer.sandbox.walls import WALLS

LEAST_FREE, LITTLE_FREE = 200_000_000, 2_000_000_000
"""Bytes without which nothing works, and from which on nobody need think of it."""
EXACT_S = 5.0
"""How far a clock may be off without a word."""
SLOW_MS, SLOW_MBPS = 500.0, 2.0
CLOCK_ADVICE = (
    "Let the system set it: `timedatectl set-ntp true`, or the settings of date and time."
)
AGAIN = "Look again later; `--json FILE` keeps what was seen for whoever helps you."
LATE = (
    "Look again. If it stays so, this machine is very busy, or something swallows what is asked "
    "without a word: a firewall, a VPN, a drive that is not there."
)
MATCHMAKER_ADVICE = (
    "Name one: --matchmaker URL, or the setting `matchmaker`. Without one, hosts are found on your "
    "own network, and elsewhere by link."
)
DIAL_ADVICE = (
    "Name a matchmaker elsewhere, which dials back: `crowdgrad doctor --matchmaker URL`. Who only "
    "lends need not be dialled."
)
MULTICAST_ADVICE = (
    f"A firewall may stop UDP port {PORT}, a VPN all multicast. By address or link hosts can be "
    "joined all the same."
)
RELAY_ADVICE = (
    "Or host through a relay: `crowdgrad host … --relay ROUTE`, or a matchmaker that has one. "
    "Lending is not affected."
)
FIREWALL_ADVICE = (
    "Allow the TCP port at which you would host in this machine's firewall and in any other before "
    "it, and look again with `--port PORT`."
)
KIND_ADVICE: dict[nat.Kind, str] = {
    "open": FIREWALL_ADVICE,
    "mapped": FIREWALL_ADVICE,
    "double": "Make one of the two routers a bridge (“modem mode”), or forward the port in the "
    "outer one to the inner one (docs/home.md).",
    "carrier": "Nobody but the provider can open a port: ask it for an IPv4 address of your own.",
    "closed": "Switch on UPnP or NAT-PMP in the router, or forward a port there by hand "
    "(docs/home.md).",
    "unknown": FIREWALL_ADVICE,
}


def versions(found: seen.Versions) -> list[Finding]:
    data: dict[str, Value] = {
        "crowdgrad": found.crowdgrad,
        "protocol": f"{found.protocol[0]}.{found.protocol[1]}",
        "python": found.python,
        "system": found.system,
        "tls": found.tls,
        "libraries": {**found.lending, **found.hosting},
    }
    missing = [name for name, version in found.lending.items() if not version]
    only_host = [name for name, version in found.hosting.items() if not version]
    if missing:
        words = f"{_listed(missing)} {_are(missing)} missing."
        return [Finding(id="versions", state="bad", words=words, advice=INSTALL, data=data)]
    if not found.has_tls13:
        words = f"{found.tls} knows no TLS 1.3: no connection can be encrypted."
        advice = "Use a Python with OpenSSL 1.1.1 or later."
        return [Finding(id="versions", state="bad", words=words, advice=advice, data=data)]
    able = "can lend and host"
    if only_host:
        able = (
            f"can lend; to host, install '.[host]' ({_listed(only_host)} {_are(only_host)} missing)"
        )
    words = (
        f"crowdgrad {found.crowdgrad}, protocol {data['protocol']}, Python {found.python}; {able}."
    )
    return [Finding(id="versions", state="good", words=words, data=data)]


def clock(found: seen.Matchmaker) -> list[Finding]:
    """Against a matchmaker's: a host that is far off turns away whom it introduces."""
    if found.offset_s is None:
        words = "Not compared: no matchmaker answers. Without one it hardly matters."
        return [_skipped("clock", words)]
    off = found.offset_s
    data: dict[str, Value] = {"offset_s": round(off, 3)}
    if abs(off) <= EXACT_S:
        words = "It agrees with the matchmaker's" + (" to the second." if abs(off) < 1 else ".")
        return [Finding(id="clock", state="good", words=words, data=data)]
    words = f"It is {_long(abs(off))} {'behind' if off > 0 else 'ahead of'} the matchmaker's."
    state: State = "warn"
    if abs(off) > SKEW_S:
        state = "bad"
        words += " A host with such a clock turns away whom the matchmaker introduces."
    return [Finding(id="clock", state=state, words=words, advice=CLOCK_ADVICE, data=data)]


def disk(found: Sequence[seen.Disk]) -> list[Finding]:
    data: dict[str, Value] = {one.purpose: _plain(one) for one in found}
    worst: Finding | None = None
    for one in found:
        if one.trouble:
            words = f"The folder for {one.purpose}, {one.path}, cannot be written: {one.trouble}."
            advice = "Choose another: CROWDGRAD_HOME for keys and data, --runs for results."
            return [Finding(id="disk", state="bad", words=words, advice=advice, data=data)]
        if one.free_bytes < LITTLE_FREE and (worst is None or worst.state != "bad"):
            state: State = "bad" if one.free_bytes < LEAST_FREE else "warn"
            words = f"Only {_size(one.free_bytes)} are free for {one.purpose} ({one.path})."
            advice = "Make room; the setting `cache_mb` bounds what data sets may take."
            worst = Finding(id="disk", state=state, words=words, advice=advice, data=data)
    if worst is not None:
        return [worst]
    free = [f"{_size(one.free_bytes)} for {one.purpose}" for one in found]
    return [Finding(id="disk", state="good", words=f"Free: {', '.join(free)}.", data=data)]


def ports(found: Sequence[seen.Port]) -> list[Finding]:
    data: dict[str, Value] = {str(one.number): one.whose or one.trouble or "free" for one in found}
    told, advice = [], ""
    state: State = "good"
    free = [str(one.number) for one in found if not one.whose and not one.trouble]
    if free:
        told.append(f"{_listed(free)} {_are(free)} free")
    for one in found:
        if one.trouble:
            state, advice = "warn", "Ports below 1024 need privileges; choose another with --port."
            told.append(f"{one.number} cannot be had ({one.trouble})")
        elif one.whose == "else":
            state, advice = "warn", "Choose another with --port, or 0 for any free one."
            told.append(f"{one.number} is taken by another program")
        elif one.whose:
            told.append(f"at {one.number} a {one.whose} of ours listens")
    return [
        Finding(id="ports", state=state, words=f"{_listed(told)}.", advice=advice, data=data)
    ]  # fmt: skip


def multicast(found: seen.Multicast, near: Sequence[Nearby]) -> list[Finding]:
    """`near`: who has announced itself. That this machine hears itself says nothing of others."""
    data: dict[str, Value] = {
        "asked": {one.address: one.trouble or "heard" for one in found.asked},
        "out": found.out,
        "hosts": len(near),
        "hosts_here": len(near) - len(_elsewhere(near, found.here)),
    }
    if not found.asked:
        words = "This machine is on no network where hosts could be looked for."
        advice = "Connect it. Hosts on this machine itself are joined by address."
        return [Finding(id="multicast", state="warn", words=words, advice=advice, data=data)]
    first, *others = found.asked
    heard = [one.address for one in others if not one.trouble]
    silent = [f"{one.address} ({one.trouble})" for one in others if one.trouble]
    if first.trouble:
        words = f"At {first.address} hosts cannot be looked for by multicast: {first.trouble}."
        words += f" It works at {_listed(heard)}." if heard else ""
        words += f" {_heard_of(found, near)}" if _elsewhere(near, found.here) else ""
        return [
            Finding(id="multicast", state="warn", words=words, advice=MULTICAST_ADVICE, data=data)
        ]
    words = _heard_of(found, near) + (f" Not so at {_listed(silent)}." if silent else "")
    return [Finding(id="multicast", state="good", words=words, data=data)]


def _heard_of(found: seen.Multicast, near: Sequence[Nearby]) -> str:
    """How far a question is known to get."""
    can = "This machine can ask for hosts by multicast, and hear"
    if not found.out:
        return f"{can} itself; nothing was sent."
    away = len(_elsewhere(near, found.here))
    if away:
        told = "One host announces itself" if away == 1 else f"{away} hosts announce themselves"
        return f"{told} on this network."
    answers, other = "No host answers", "one"
    if near:
        several = "hosts on this machine answer"
        answers = "Only " + ("a host on this machine answers" if len(near) == 1 else several)
        other = "another"
    return f"{can}. {answers}; whether the network passes it on shows only when {other} does."


def _elsewhere(near: Sequence[Nearby], here: Sequence[str]) -> list[Nearby]:
    """Those on other machines than this: only they show that the network passes anything on."""
    return [
        one for one in near if any(way.host.partition("%")[0] not in here for way in one.routes)
    ]


def matchmaker(found: seen.Matchmaker) -> list[Finding]:
    data: dict[str, Value] = {
        "url": found.url,
        "answers_ms": [round(ms, 1) for ms in found.answers_ms],
    }
    if found.trouble is not None:
        if not found.chosen:
            words = f"None is set, and nobody answers at {found.url}."
            return [_skipped("matchmaker", words, data, MATCHMAKER_ADVICE)]
        return [_troubled("matchmaker", "bad", found.trouble, data)]
    median = statistics.median(found.answers_ms)
    words = f"{found.url} answers in {_ms(median)}."
    if median > SLOW_MS:
        advice = "It is far away or busy: codes and matches come late, training is not affected."
        return [Finding(id="matchmaker", state="warn", words=words, advice=advice, data=data)]
    return [Finding(id="matchmaker", state="good", words=words, data=data)]


def network(found: seen.Network) -> list[Finding]:
    """Only hosts have to be dialled: what is wrong here is a warning."""
    here = found.local[0] if found.local else ""
    kind, why = nat.judge(here, found.external, found.observed)
    data = {**_plain(found), "kind": kind, "because": why}
    if not here:
        words = "This machine has no network but its own."
        advice = "Connect it. Jobs on this machine itself work all the same."
        return [Finding(id="network", state="warn", words=words, advice=advice, data=data)]
    if found.reached:
        how = f", by a port that the router opens ({found.by})" if found.by else ""
        words = f"Others can dial this machine{how}: it can host without a relay."
        if not _is_public(found.observed):
            words = f"The matchmaker can dial this machine{how}, but both are on one network."
        return [Finding(id="network", state="good", words=words, data=data)]
    if found.reached is None:
        return [_not_dialled(found, here, data)]
    who = "Others" if _is_public(found.observed) else "The matchmaker, on the same network,"
    opened = f", though the router opens a port by {found.by}" if found.by else ""
    if kind == "open":
        why = f"{why}, so a firewall may stand before it"
    elif kind in ("mapped", "unknown"):
        why = "a firewall may stand before it"
    words = f"{who} cannot dial this machine{opened} ({_lower(found.why)}): {why}."
    if found.router and kind in ("double", "carrier", "closed"):  # else it is not the reason
        words += f" {found.router.rstrip('.')}."
    advice = f"{KIND_ADVICE[kind]} {RELAY_ADVICE}"
    return [Finding(id="network", state="warn", words=words, advice=advice, data=data)]


def _not_dialled(found: seen.Network, here: str, data: dict[str, Value]) -> Finding:
    """Nobody has tried; some addresses tell all the same."""
    kind, why = nat.judge(here, found.external, found.observed)
    if kind == "carrier":
        advice = f"{KIND_ADVICE[kind]} {RELAY_ADVICE}"
        return _skipped("network", f"Nobody could dial this machine: {why}.", data, advice)
    reason, advice = "nobody outside has looked", DIAL_ADVICE
    if found.trouble is not None:
        reason, advice = found.trouble.message.rstrip("."), found.trouble.advice or DIAL_ADVICE
    return _skipped(
        "network", f"Whether {here} can be dialled is not known: {reason}.", data, advice
    )


def relays(
    found: Sequence[seen.Relay], *, named: bool, answers_ms: Sequence[float] = ()
) -> list[Finding]:
    """`named`: somebody asked for these; otherwise the matchmaker did. `answers_ms`: how long that
    took to answer, which is all that is known of the link where there is no relay."""
    if found:
        return [_relay(one, named=named) for one in found]
    words = "None is known, so the speed of this machine's link was not measured"
    if answers_ms:
        words += f"; the matchmaker answers in {_ms(statistics.median(answers_ms))}"
    advice = (
        "`crowdgrad doctor --relay ROUTE` measures the link to one. Only a host that cannot be "
        "dialled needs one."
    )
    return [_skipped("relay", f"{words}.", advice=advice)]


def _relay(one: seen.Relay, *, named: bool) -> Finding:
    data = _plain(one)
    if one.trouble is not None:
        return _troubled("relay", "bad" if named else "warn", one.trouble, data)
    name = one.route.removeprefix("relay:")
    if one.refused is not None:
        words = f"{name} answers; how fast was not measured. {one.refused.message.rstrip('.')}."
        state: State = "warn" if one.refused.advice else "good"
        return Finding(id="relay", state=state, words=words, advice=one.refused.advice, data=data)
    speed = f"{_mbps(one.down_mbps)} down, {_mbps(one.up_mbps)} up"
    words = f"{name} answers in {_ms(one.answer_ms)}; {speed}."
    if min(one.down_mbps, one.up_mbps) < SLOW_MBPS:
        advice = "Large models take long over this link; a relay nearer to you may be quicker."
        return Finding(id="relay", state="warn", words=words, advice=advice, data=data)
    return Finding(id="relay", state="good", words=words, data=data)


def ways(found: Sequence[seen.Way], pin: str) -> list[Finding]:
    """To one host: one way is enough. `pin`: of its key; empty: anybody's will do."""
    reached = any(one.trouble is None for one in found)
    return [_way(one, pin, otherwise=reached) for one in found]


def _way(one: seen.Way, pin: str, *, otherwise: bool) -> Finding:
    data = _plain(one)
    if one.trouble is not None:
        return _troubled("way", "warn" if otherwise else "bad", one.trouble, data)
    words = f"The host answers at {one.route} after {_ms(one.ms)}, with the key {one.key}"
    rest = ", as it should." if pin else "; compare it with what the host shows."
    return Finding(id="way", state="good", words=words + rest, data=data)


def job(found: seen.Job, pin: str) -> list[Finding]:
    data = _plain(found)
    if found.trouble is not None:
        return [_troubled("way", "bad", found.trouble, data)]
    if pin and not pin.startswith(found.key[:16]):
        words = f"The matchmaker has another host's key for {found.code} than the link: {found.key}"
        advice = "Do not join with it. Ask whoever gave you the link."
        return [Finding(id="way", state="bad", words=f"{words}.", advice=advice, data=data)]
    words = f"{found.code} is “{found.title}”, {found.state}, by the host with the key {found.key}"
    if not found.present:
        advice = "Its host is not there at the moment: try later, or ask whoever hosts it."
        return [Finding(id="way", state="warn", words=f"{words}.", advice=advice, data=data)]
    checked = ", which fits the link" if pin else ""
    return [Finding(id="way", state="good", words=f"{words}{checked}.", data=data)]


def nobody_near(code: str) -> Finding:
    words = f"Nobody on this network has the code {code}."
    advice = (
        "Are both machines on the same network, and does the host still run? Networks for guests "
        "often keep their machines apart: ask for the address or the link."
    )
    return Finding(id="way", state="bad", words=words, advice=advice)


def walls(found: Examination) -> list[Finding]:
    """Whether a stranger's model can be let in; the walls themselves are told by whoever shows."""
    verdict = {one.wall: one.holds for one in found.verdict}
    broken = [wall.id for wall in WALLS if wall.essential and not verdict[wall.id]]
    thin = [wall.id for wall in WALLS if not wall.essential and not verdict[wall.id]]
    stopped = sum(one.stopped for one in found.outcomes)
    data: dict[str, Value] = {
        "held": sum(verdict.values()),
        "walls": len(WALLS),
        "stopped": stopped,
        "attempts": len(found.outcomes),
    }
    if "error" in found.libraries:
        words = "onnxruntime cannot be loaded behind the walls: no job can run here."
        return [Finding(id="walls", state="bad", words=words, advice=INSTALL, data=data)]
    if broken:
        words = f"Essential walls that do not hold: {', '.join(broken)}."
        advice = "Lend this machine only to hosts you know."
        return [Finding(id="walls", state="bad", words=words, advice=advice, data=data)]
    if thin:
        words = f"A stranger's model can be let in, but no promise is kept about {_listed(thin)}."
        advice = "`crowdgrad doctor --only walls` says why."
        return [Finding(id="walls", state="warn", words=words, advice=advice, data=data)]
    words = f"All {len(WALLS)} around strangers' models hold; {stopped} attempts were stopped."
    return [Finding(id="walls", state="good", words=words, data=data)]


def not_found_out(id: str, trouble: seen.Trouble) -> Finding:
    """Where looking itself went wrong."""
    return _troubled(id, "warn", trouble, {})


def not_in_time(id: str, within_s: float) -> Finding:
    words = f"That could not be found out within {within_s:.0f} s."
    return Finding(id=id, state="warn", words=words, advice=LATE)


def not_installed(id: str, name: str) -> Finding:
    words = f"That could not be found out: {name} is missing."
    return Finding(id=id, state="warn", words=words, advice=INSTALL)


def _is_public(address: str) -> bool:
    return nat.judge(address)[0] == "open"


# -- words ----------------------------------------------------------------------------------------


def _skipped(
    id: str, words: str, data: dict[str, Value] | None = None, advice: str = ""
) -> Finding:
    return Finding(id=id, state="skipped", words=words, advice=advice, data=data or {})


def _troubled(id: str, state: State, trouble: seen.Trouble, data: dict[str, Value]) -> Finding:
    advice = trouble.advice or AGAIN
    return Finding(id=id, state=state, words=trouble.message, advice=advice, data=data)


def _plain(one: seen.Disk | seen.Network | seen.Relay | seen.Way | seen.Job) -> dict[str, Value]:
    return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(one).items()}


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _are(parts: Sequence[str]) -> str:
    return "is" if len(parts) == 1 else "are"


def _lower(text: str) -> str:
    return (text[:1].lower() + text[1:]).rstrip(".") or "nobody says why"


def _size(count: int) -> str:
    return f"{count / 1e9:,.0f} GB" if count >= 10e9 else f"{count / 1e9:.1f} GB"


def _ms(ms: float) -> str:
    return f"{max(ms, 1):.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def _mbps(mbps: float) -> str:
    if mbps >= 1000:
        return f"{mbps / 1000:.1f} Gbit/s"
    return f"{mbps:.0f} Mbit/s" if mbps >= 10 else f"{mbps:.1f} Mbit/s"


def _long(seconds: float) -> str:
    for unit, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} seconds"
