"""The command line: parse, call, print; one noun a file."""

import os

# Before numpy is there. Its sums of a vector would otherwise wake a thread for every core, which
# takes longer than they do, and from a volunteer's trainer what it computes with.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
