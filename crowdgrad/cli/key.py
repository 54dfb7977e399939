"""`crowdgrad key`: who you are, your key as words, and what a matchmaker keeps about you."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime
from typing import TYPE_CHECKING

from crowdgrad.cli.output import JSON_HELP, fitted, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crowdgrad.net import rooms
    from crowdgrad.net.identity import Identity
    from crowdgrad.settings import Settings

TEXT = """\
Your key is who you are, to hosts, to volunteers and to the matchmaker: there
are no accounts and no passwords. It is made at the first start.

  crowdgrad key                    its id, and where it is kept
  crowdgrad key phrase             the key as 24 words, to write down
  crowdgrad key recover            bring a key back from its words
  crowdgrad key gave [KEY]         what a key gave, and what its jobs were given
  crowdgrad key kept               what the matchmaker keeps about you
  crowdgrad key forget             make it forget all of that
"""
WARNING = "Whoever has these words is you. Write them on paper; show them to nobody."
COLUMNS = 4
LABEL = 13
WITHIN_S = 30.0
"""How long an answer may take that has everything in it."""
UNLISTED = "a job that is not public"
AMOUNTS = "     units      samples          work  countersigned"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "key",
        help="who you are: your key, its words, what is kept about you",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--home", metavar="DIR", help="the home folder")
    parser.add_argument("--json", metavar="FILE", help=JSON_HELP)
    parser.set_defaults(run=run_show)
    commands = parser.add_subparsers(
        title="commands", metavar="show | phrase | recover | gave | kept | forget"
    )
    show = commands.add_parser("show", help="its id, and where it is kept")
    show.set_defaults(run=run_show)
    phrase = commands.add_parser("phrase", help="the key as 24 words, to write down")
    phrase.add_argument("--yes", action="store_true", help="show them though it is no terminal")
    phrase.set_defaults(run=run_phrase)
    recover = commands.add_parser("recover", help="bring a key back from its words")
    recover.add_argument(
        "--replace", action="store_true", help="instead of another, which is put beside (key.old)"
    )
    recover.set_defaults(run=run_recover)
    gave = commands.add_parser("gave", help="what a key gave, and what its jobs were given")
    gave.add_argument("key", metavar="KEY", nargs="?", help="the id of a key (yours)")
    gave.set_defaults(run=run_gave)
    kept = commands.add_parser("kept", help="what the matchmaker keeps about you")
    kept.set_defaults(run=run_kept)
    forget = commands.add_parser("forget", help="make the matchmaker forget you")
    forget.add_argument("--yes", action="store_true", help="without a question")
    forget.set_defaults(run=run_forget)
    for command in (gave, kept, forget):
        command.add_argument("--matchmaker", metavar="URL", help="which one (see settings)")
    # Without a default: what was said before the verb holds.
    for command in (show, gave, kept, forget):
        command.add_argument("--json", metavar="FILE", default=argparse.SUPPRESS, help=JSON_HELP)
    for command in (show, phrase, recover, gave, kept, forget):
        command.add_argument(
            "--home", metavar="DIR", default=argparse.SUPPRESS, help="the home folder"
        )


# This machine


def run_show(args: argparse.Namespace) -> int:
    from crowdgrad.net.identity import file_of

    settings, key = _ours(args)
    file = str(file_of(settings.home))
    write_json(args.json, {"id": key.id, "public": key.public.hex(), "file": file})
    if args.json != "-":
        _print_rows(("Key", key.id), ("Public key", key.public.hex()), ("Kept in", file))
        print("Write down its words before you need them: crowdgrad key phrase")
    return 0


def run_phrase(args: argparse.Namespace) -> int:
    from crowdgrad.errors import NotAgreed

    if not (args.yes or sys.stdout.isatty()):
        raise NotAgreed(
            "The words of a key are shown on a terminal only.", advice="Say --yes if you mean it."
        )
    _, key = _ours(args)
    cells = [f"{number:2} {word:9}" for number, word in enumerate(key.phrase, start=1)]
    for start in range(0, len(cells), COLUMNS):
        print("  ".join(cells[start : start + COLUMNS]).rstrip())
    print(fitted(WARNING, sys.stderr), file=sys.stderr)
    return 0


def run_recover(args: argparse.Namespace) -> int:
    from crowdgrad.net.identity import file_of, recover
    from crowdgrad.net.phrase import MAX_CHARACTERS
    from crowdgrad.settings import load

    home = load({"home": args.home}).home
    words = _typed_words() if sys.stdin.isatty() else sys.stdin.read(MAX_CHARACTERS)
    key = recover(home, words, replace=args.replace)
    print(fitted(f"You are {key.id}; the key is kept in {file_of(home)}.", sys.stdout))
    return 0


def _typed_words() -> str:
    from crowdgrad.cli.ask import read_line
    from crowdgrad.net.phrase import WORDS, words_of
    from crowdgrad.process import run_async

    async def lines() -> str:
        typed = ""
        while len(words_of(typed)) < WORDS and (line := await read_line()):
            typed += f"{line}\n"
        return typed

    print(
        f"Type the {WORDS} words in their order, on as many lines as you like; an empty one ends:"
    )
    return run_async(lines())


# The matchmaker


def run_gave(args: argparse.Namespace) -> int:
    import msgspec

    from crowdgrad.errors import TargetError
    from crowdgrad.net import rooms
    from crowdgrad.settings import load

    key = _ours(args)[1].id if args.key is None else args.key.strip().lower()
    if len(key) != 16 or not set(key) <= set("0123456789abcdef"):
        raise TargetError(
            f"{args.key[:70]!r} is not the id of a key.",
            advice="It has 16 hexadecimal digits; `crowdgrad key` shows yours.",
        )
    settings = load({"home": args.home, "matchmaker": args.matchmaker})
    raw = _ask(settings, "GET", f"/v1/keys/{key}")
    found = rooms.decode(msgspec.json.Decoder(rooms.KeySummary), raw)
    write_json(args.json, msgspec.to_builtins(found))
    if args.json != "-":
        for line in _gave_lines(key, found):
            print(line)
    return 0


def run_kept(args: argparse.Namespace) -> int:
    import msgspec

    from crowdgrad.net import rooms

    settings, key = _ours(args)
    raw = _ask(settings, "GET", "/v1/me", key)
    kept = rooms.decode(msgspec.json.Decoder(rooms.Kept), raw)
    write_json(args.json, msgspec.to_builtins(kept))
    if args.json != "-":
        print(fitted(f"What {settings.matchmaker} keeps about your key {key.id}:", sys.stdout))
        _print_rows(*_kept_rows(kept))
        if _anything(kept):
            print("To have it forgotten: crowdgrad key forget")
    return 0


def run_forget(args: argparse.Namespace) -> int:
    import msgspec

    from crowdgrad.net import rooms

    settings, key = _ours(args)
    told, gone = "Nothing was forgotten.", rooms.Forgotten(entries=0)
    if args.yes or _means_it(settings.matchmaker, to_stderr=args.json == "-"):
        raw = _ask(settings, "DELETE", "/v1/me", key)
        gone = rooms.decode(msgspec.json.Decoder(rooms.Forgotten), raw)
        are = "entry is" if gone.entries == 1 else "entries are"
        told = f"Forgotten: {gone.entries} {are} gone."
    write_json(args.json, msgspec.to_builtins(gone))
    if args.json != "-":
        print(told)
    return 0


def _ask(settings: Settings, method: str, path: str, key: Identity | None = None) -> bytes:
    from crowdgrad.net import web
    from crowdgrad.settings import Settings

    default = settings.matchmaker == Settings().matchmaker
    with web.advising(web.DEFAULT_ADVICE if default else web.CHOSEN_ADVICE):
        return web.ask(settings.matchmaker, method, path, key=key, within_s=WITHIN_S)


def _means_it(matchmaker: str, *, to_stderr: bool) -> bool:
    from rich.console import Console

    from crowdgrad.cli.ask import can_ask, yes_or_no
    from crowdgrad.errors import NotAgreed

    console = Console(highlight=False, stderr=to_stderr)
    if not can_ask(console):
        raise NotAgreed("Nobody is here to be asked.", advice="Say --yes if you mean it.")
    told = (
        f"{matchmaker} will forget your registration, your places, what you gave and the jobs you "
        "published. It cannot be undone. Your key stays on this machine."
    )
    console.print(told, markup=False)
    return yes_or_no(console, "Forget it all?")


def _ours(args: argparse.Namespace) -> tuple[Settings, Identity]:
    from crowdgrad.net.identity import load_or_make
    from crowdgrad.settings import load

    settings = load({"home": args.home, "matchmaker": getattr(args, "matchmaker", None)})
    return settings, load_or_make(settings.home)


# What is shown


def _print_rows(*rows: tuple[str, str]) -> None:
    from crowdgrad.errors import one_line

    for label, value in rows:
        print(fitted(f"{label:{LABEL}}{one_line(value)}", sys.stdout, " " * LABEL))


def _gave_lines(key: str, found: rooms.KeySummary) -> Iterator[str]:
    from crowdgrad.errors import one_line

    if not found.gave:
        yield f"The key {key} has given nothing here yet."
    else:
        yield f"{AMOUNTS}  to"
        for credit in found.gave:
            whose = f" of {one_line(credit.host) or 'nobody'}" if credit.title else ""
            yield f"{_amounts(credit)}  {_job(credit)}{whose}"
        yield f"In all {_flop(found.flop)} are countersigned by {key}."
    if found.received:
        yield "What was given to its jobs:"
        yield f"{AMOUNTS}  by"
        for credit in found.received:
            yield f"{_amounts(credit)}  {one_line(credit.volunteer)} to {_job(credit)}"


def _amounts(credit: rooms.CreditBody) -> str:
    gift = credit.reported
    return f"{gift.units:10,} {gift.samples:12,} {_flop(gift.flop):>13}  {_signed(credit):13}"


def _job(credit: rooms.CreditBody) -> str:
    from crowdgrad.errors import one_line

    return f"“{one_line(credit.title)}”" if credit.title else UNLISTED


def _kept_rows(kept: rooms.Kept) -> Iterator[tuple[str, str]]:
    if kept.registered is not None:
        yield from _registered_rows(kept.registered, kept.since or 0.0)
    for place in kept.places:
        yield "Place", f"{place.position} in job {place.job}, as “{place.name}”"
    for offer in kept.jobs:
        yield "Job", f"“{offer.title}” ({offer.id}), {offer.visibility}, at {offer.address}"
    for credit in kept.gave:
        yield "Gave", f"{_given(credit)} to “{credit.title}” ({credit.job}) of {credit.host}"
    for credit in kept.received:
        yield "Was given", f"{_given(credit)} by {credit.volunteer} to “{credit.title}”"
    if not _anything(kept):
        yield "Nothing", "at all."


def _anything(kept: rooms.Kept) -> bool:
    return bool(kept.registered or kept.places or kept.jobs or kept.gave or kept.received)


def _registered_rows(said: rooms.Register, since: float) -> Iterator[tuple[str, str]]:
    me, machine, wants = said.volunteer, said.machine, said.wants
    yield (
        "Registered",
        f"as “{me.name}” since {datetime.fromtimestamp(since):%Y-%m-%d %H:%M}",
    )
    yield (
        "Machine",
        _listed(
            f"{machine.kind}, {me.cores} cores, {me.memory_mb:,} MB of memory",
            me.engine,
            me.software,
            machine.gpu and f"GPU {machine.gpu} with {machine.gpu_memory_mb:,} MB",
            machine.gflops and f"{machine.gflops:g} GFLOP/s",
            machine.download_mbps and f"{machine.download_mbps:g} Mbit/s down",
            machine.upload_mbps and f"{machine.upload_mbps:g} Mbit/s up",
            machine.most_download_mb and f"at most {machine.most_download_mb:,} MB of data",
            machine.hours
            and f"from {_clock(machine.hours.start)} to {_clock(machine.hours.end)} UTC",
        ),
    )
    only = "only" if wants.only_causes else "rather"
    yield "Wants", _listed(
        wants.job and f"job {wants.job}",
        wants.hosts is not None and f"hosts {', '.join(wants.hosts or ()) or 'none'}",
        wants.causes and f"{only} {', '.join(wants.causes)}",
        said.avoid and f"not {', '.join(said.avoid)}",
    ) or "whoever needs help"  # fmt: skip
    if said.working_for:
        yield "Works for", said.working_for


def _listed(*parts: object) -> str:
    return "; ".join(str(part) for part in parts if part)


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def _given(credit: rooms.CreditBody) -> str:
    gift = credit.reported
    amounts = f"{gift.units:,} units, {gift.samples:,} samples, {_flop(gift.flop)}"
    return f"{amounts} ({'countersigned' if credit.agreed else 'not countersigned'})"


def _signed(credit: rooms.CreditBody) -> str:
    if credit.agreed:
        return "yes"
    return "no" if credit.signed is None else f"{_flop(credit.signed.flop)}"


def _flop(value: float) -> str:
    for power, letter in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.3g} {letter}FLOP"
    return f"{value:.0f} FLOP"
