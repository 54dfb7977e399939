"""One example of every word at a relay, and strategies for streams of them."""

from __future__ import annotations

from hypothesis import strategies as st

from crowdgrad.net import relay_words as words

KEY, SIGNATURE = b"k" * 32, b"s" * 64
EXAMPLES: tuple[words.Word, ...] = (
    words.Hi(version=1),
    words.Challenge(nonce=b"n" * 32),
    words.Serve(key=KEY, signature=SIGNATURE, at="relay.example.org:8702", job="digits-1"),
    words.Registered(heartbeat_s=5.0, silence_s=20.0, relay="0123456789abcdef"),
    words.Call(host="a1" * 8, key=KEY, signature=SIGNATURE, at="[2001:db8::1]:8702", job=""),
    words.Answer(ticket=b"t" * 16),
    words.Spliced(),
    words.Measure(bytes=1 << 20, key=KEY, signature=SIGNATURE, at="relay.example.org:8702"),
    words.Measuring(bytes=1 << 20),
    words.Measured(),
    words.Refused(code="CG510", reason="host-full", message="No.", advice="Try again."),
)

names = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=words.MAX_AT)
jobs = st.from_regex(r"[A-Za-z0-9_.-]{0,64}", fullmatch=True)
from_diallers = st.one_of(
    st.builds(words.Hi, version=st.integers(0, 1 << 20)),
    st.builds(
        words.Serve,
        key=st.binary(min_size=32, max_size=32),
        signature=st.binary(min_size=64, max_size=64),
        at=names,
        job=jobs,
    ),
    st.builds(
        words.Call,
        host=st.text("0123456789abcdef", min_size=16, max_size=64),
        key=st.binary(min_size=32, max_size=32),
        signature=st.binary(min_size=64, max_size=64),
        at=names,
        job=jobs,
    ),
    st.builds(words.Answer, ticket=st.binary(min_size=16, max_size=16)),
    st.builds(
        words.Measure,
        bytes=st.integers(1, words.MAX_MEASURED_BYTES),
        key=st.binary(min_size=32, max_size=32),
        signature=st.binary(min_size=64, max_size=64),
        at=names,
    ),
)
