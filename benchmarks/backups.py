"""What delay compensation's backups cost, and what cheaper ones do to accuracy.

<kind>_MB         the most memory for what units in flight started from (a copy: 0.318 MB)
<kind>_accuracy   on MNIST's test split after so many epochs, with the last parameters

Kinds: `shared` keeps one exact copy of every version somebody works from; `published_8` publishes
every eighth version only; `half` keeps half-precision differences; `half_published_8` both. DC-ASGD
with 16 volunteers in virtual time, speeds 1:20.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _crowd import Crowd, Found, mnist, paced
from _report import Report, arguments

from crowdgrad.recipes.dc_asgd import DCASGD

VOLUNTEERS, SLOWEST, LR = 16, 20.0, 0.01
KINDS = {
    "shared": DCASGD(lr=LR),
    "published_8": DCASGD(lr=LR, publish_every=8),
    "half": DCASGD(lr=LR, half_backups=True),
    "half_published_8": DCASGD(lr=LR, half_backups=True, publish_every=8),
}


def main() -> None:
    args = arguments(__doc__)
    seeds = [0] if args.quick else [0, 1, 2]
    epochs = 2 if args.quick else 8
    report = Report("backups", args.quick, seeds=seeds)
    prepared = {seed: mnist(seed, DCASGD(lr=LR)) for seed in seeds}
    for name, recipe in KINDS.items():
        found: list[Found] = []
        for seed in seeds:
            speeds = paced(SLOWEST, VOLUNTEERS)
            crowd = Crowd(prepared[seed], recipe, batch_s=speeds, epochs=epochs, seed=seed)
            found.append(asyncio.run(crowd.run()))
        report.add(f"{name}_MB", [one.peak_backup_bytes / 1e6 for one in found])
        report.add(f"{name}_accuracy", [one.accuracy for one in found])
    report.write(args.json)


if __name__ == "__main__":
    main()
