"""Hypothesis profiles: `pytest --hypothesis-profile=thorough` looks twenty times as long where a test says `few(…)`."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("thorough", deadline=None, max_examples=2_000)
settings.register_profile("default", deadline=None)  # no test is a timed one: machines are as slow as they are
settings.load_profile("default")
