"""`python -m crowdgrad`: the same as the command `crowdgrad`."""

from crowdgrad.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
