"""All sections of the configuration under their names, each with its default."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from app.settings.options import Admin, Archive, Auth, Console, Limits, Listen, Log, Model, Store, Traces, Upstream
from app.settings.policy import Policy
from app.settings.values import Glob, Name


def _providers() -> dict[str, Upstream]:
    return {
        "openai": Upstream(base_url="https://api.openai.com", formats=("openai-chat", "openai-responses")),
        "anthropic": Upstream(base_url="https://api.anthropic.com", formats=("anthropic-messages",)),
        "gemini": Upstream(base_url="https://generativelanguage.googleapis.com", formats=("gemini",)),
    }


class Sections(BaseSettings):
    """All sections, each sound in itself. `Settings` adds that they fit together."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
        env_prefix="COMPACTD_",
        env_nested_delimiter="__",
    )

    listen: Listen = Listen()
    """Where clients reach compactd."""

    admin: Admin = Admin()
    """The console, the admin API and the metrics."""

    auth: Auth = Auth()
    """Who may use compactd when it adds a provider's key of its own."""

    upstreams: dict[Name, Upstream] = Field(default_factory=_providers)
    """Provider endpoints by name. A name may stand in front of a request's path (`/anthropic/v1/messages`). Upstreams
    that the file lists take the place of the built-in ones."""

    store: Store = Store()
    """Where checkpoints, sessions and archives are kept."""

    archive: Archive = Archive()
    """Where removed messages go."""

    models: dict[Glob, Model] = {}
    """What compactd should know about models, by glob, on top of its own table. The first glob that matches counts."""

    policies: tuple[Policy, ...] = (Policy(name="default"),)
    """When and how to compact. The first policy that matches a request is taken; a request without one passes untouched."""

    limits: Limits = Limits()
    """What one process will take on."""

    console: Console = Console()
    """The web page under `/compactd/`."""

    log: Log = Log()
    """What is logged, never message content."""

    traces: Traces = Traces()
    """OpenTelemetry traces, by OTLP over HTTP."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what is handed in: `load` layers file, environment and command line, and knows where each value came from."""
        return (init_settings,)
