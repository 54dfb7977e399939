"""The command line: parse, call, print. One noun a file."""
