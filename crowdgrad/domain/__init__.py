"""What exists: frozen types that import nothing but the standard library.

Each type checks itself where it is made, so a value that exists is a value that makes sense; the
codecs in `net` build them from strangers' bytes and turn a `ValueError` here into a refusal.
"""
