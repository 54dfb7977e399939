"""`crowdgrad data prepare --follow`: stay, and add what comes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from crowdgrad.cli.output import write_json
from crowdgrad.process import interrupt_on_sigterm

LOOK_S = 0.2


def follow(source: Any, out: Path, *, home: Path | None, json: str | None) -> int:
    from crowdgrad.cli.data_show import report_of
    from crowdgrad.data.folder import open_folder
    from crowdgrad.data.preparing.record import read_record
    from crowdgrad.host.preparing import Following

    interrupt_on_sigterm()

    def say(words: str) -> None:
        if json != "-":
            print(words, flush=True)

    following = Following(out, source, None, heard=say, home=home)
    records = following.folder.manifest.records("train")
    say(f"{out} has {records:,} records to train on; new ones are added. Ctrl-C ends it.")
    try:
        while following.alive:
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        say("Adding what waits ...")
    following.stop()
    write_json(json, report_of(open_folder(out), read_record(out)))
    return 0
