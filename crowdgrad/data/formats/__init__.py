"""Readers of file formats, one per file.

A file is a stranger's bytes: every size in it is checked against the bytes that are there before
memory is taken, and whatever is wrong becomes a DataMalformed that names the file and the values.
"""
