"""The settings: every option explained under its field, read from a YAML file, the environment and the command line.

`load` reads them, `Settings` holds them, `describe` shows them without secrets. A leaf: it imports nothing of compactd but
`app.errors`.
"""

from app.settings.describe import describe
from app.settings.load import Need, load
from app.settings.match import Match
from app.settings.options import Archive, Client, Listen, Log, Model, Store, Traces, Upstream
from app.settings.policy import EXTRACTIVE, Policy
from app.settings.settings import Settings

__all__ = [
    "EXTRACTIVE",
    "Archive",
    "Client",
    "Listen",
    "Log",
    "Match",
    "Model",
    "Need",
    "Policy",
    "Settings",
    "Store",
    "Traces",
    "Upstream",
    "describe",
    "load",
]
