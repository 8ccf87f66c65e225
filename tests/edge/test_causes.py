from __future__ import annotations

import asyncio
import socket

import pytest

from app.edge.causes import cause


def behind(error: Exception) -> str:
    """What is said of a foreign exception that was raised for this one."""
    try:
        try:
            raise error
        except Exception:
            raise RuntimeError("a text with secret values")  # noqa: B904
    except RuntimeError as outer:
        return cause(outer)


async def test_a_refused_connection_is_told_without_its_address() -> None:
    with pytest.raises(ConnectionRefusedError) as refused:
        await asyncio.open_connection("127.0.0.1", 1)
    assert behind(refused.value) == "Connection refused"


def test_a_name_that_nobody_knows() -> None:
    assert behind(socket.gaierror(socket.EAI_NONAME, "Name or service not known")) == "Name or service not known"


def test_of_all_else_nothing_is_said() -> None:
    for error in (ValueError("secret"), OSError("secret"), TimeoutError("secret"), KeyError("secret")):
        assert behind(error) == ""


def test_exceptions_that_were_raised_for_each_other() -> None:
    first, second = ConnectionRefusedError(111, "secret"), ValueError("secret")
    first.__cause__, second.__cause__ = second, first
    assert cause(first) == "Connection refused"
