"""Chunks: where they are kept, and (later) how they spread from machine to machine.

`base` says what a place for chunks can do, `store` has one on disk and its twin in memory;
`mirrors` fetches them from published copies. Whoever hands out bytes hands out verified bytes: a
chunk is named by the sha256 of its content.
"""
