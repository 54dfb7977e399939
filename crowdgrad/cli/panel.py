"""`crowdgrad panel`, and `crowdgrad` alone: the control panel in the browser."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

from crowdgrad.cli.output import add_common

TEXT = """\
Open the control panel in the browser: host a model, lend this machine, and see
everything happen. It listens on this machine only and lets in whoever opens
the address it prints. Ctrl-C ends it, with the hosts and the volunteer it has
started; a run keeps its checkpoints and can be resumed.

  crowdgrad                 the same; options may follow: crowdgrad --app
  crowdgrad panel --app     in a window of its own, where a Chromium is found
  crowdgrad panel --no-browser   only print the address
"""
OPTIONS = ("--app", "--no-browser", "--port", "--host", "--runs", "--home", "--tied")
"""They may stand without the command."""
LOOPBACK = "127.0.0.1"
LOUD = (
    "CAUTION: the panel listens beyond this machine. Whoever has the address may start programs "
    "here, and it travels unencrypted."
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "panel",
        help="the control panel in the browser (also without a command)",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    parser.set_defaults(run=run)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--app", action="store_true", help="in a window of its own (Chromium)")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (any free one)")
    parser.add_argument(
        "--host", default=LOOPBACK, help=f"address to listen on ({LOOPBACK}: this machine only)"
    )
    parser.add_argument("--runs", metavar="DIR", default="runs", help="where results go (runs)")
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    from crowdgrad.net.addresses import is_loopback
    from crowdgrad.panel.serve import serve
    from crowdgrad.process import run_async
    from crowdgrad.settings import load

    settings = load({"home": args.home})
    if not is_loopback(args.host):
        print(LOUD, file=sys.stderr, flush=True)

    def started(url: str, once: str) -> None:
        print(f"The control panel: {url}", flush=True)
        print("Ctrl-C ends it, and what it has started.", flush=True)
        if args.no_browser or not _can_show():
            print("Open this address in a browser.", flush=True)
        else:  # a browser may take seconds to say whether it has begun, and asks us meanwhile
            show = partial(_show, once, own_window=args.app)
            threading.Thread(target=show, name="browser", daemon=True).start()

    run_async(
        serve(settings, host=args.host, port=args.port, runs=Path(args.runs), started=started)
    )
    print("Stopped.", file=sys.stderr)
    return 0


def _can_show() -> bool:
    """Whether somebody sits here with a screen."""
    if not sys.stdout.isatty():
        return False
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _show(url: str, *, own_window: bool) -> None:
    import webbrowser

    from crowdgrad.panel.browsers import find_chromium

    chromium = find_chromium(sys.platform) if own_window else None
    if chromium is not None:
        quiet = subprocess.DEVNULL
        # It may become everybody's browser: our Ctrl-C is not meant for it.
        subprocess.Popen(
            [chromium, f"--app={url}"], stdin=quiet, stdout=quiet, stderr=quiet,
            start_new_session=True,
        )  # fmt: skip
    elif not webbrowser.open(url):
        print("No browser could be started: open this address in one.", flush=True)
