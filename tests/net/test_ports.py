"""Taking a port."""

from __future__ import annotations

import pytest

from crowdgrad.errors import PortBusy, SettingError
from crowdgrad.net.ports import bind


def test_a_busy_port_is_said_to_be_busy() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(PortBusy, match=rf"127\.0\.0\.1:{port}") as busy:
            bind("127.0.0.1", port)
        assert (busy.value.code, "--port" in busy.value.advice) == ("CG201", True)


@pytest.mark.parametrize(
    ("host", "port"), [("no such host", 1), ("127.0.0.1", 70000), ("192.0.2.1", 0)]
)
def test_an_address_that_cannot_be_had(host: str, port: int) -> None:
    with pytest.raises(SettingError):
        bind(host, port)


def test_an_address_that_went_away_is_said_with_the_option_that_named_it() -> None:
    for option, named in (("--port", "--host"), ("--page", "--page")):
        with pytest.raises(SettingError, match="is no address of this machine") as gone:
            bind("192.0.2.1", 0, option)
        assert named in gone.value.advice
