"""A configuration file from a piece of YAML, loaded, or its faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from app.errors import ConfigInvalid
from app.settings import Settings, load

Load = Callable[..., Settings]
Faults = Callable[..., list[str]]


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load `compactd.yaml` with this text, by its bare name."""
    monkeypatch.chdir(tmp_path)

    def run(text: str | None, environ: Mapping[str, str] = {}, overrides: Mapping[str, object] = {}) -> Settings:
        if text is None:
            return load(None, environ, overrides)
        Path("compactd.yaml").write_text(dedent(text), encoding="utf-8")
        return load(Path("compactd.yaml"), environ, overrides)

    return run


@pytest.fixture
def faults(loaded: Load) -> Faults:
    """The faults of a configuration that must not load."""

    def run(text: str | None, environ: Mapping[str, str] = {}, overrides: Mapping[str, object] = {}) -> list[str]:
        with pytest.raises(ConfigInvalid) as caught:
            loaded(text, environ, overrides)
        assert str(caught.value) == "\n".join(caught.value.faults)
        return caught.value.faults

    return run
