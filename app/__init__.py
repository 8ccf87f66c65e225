"""compactd: an HTTP proxy that keeps long LLM conversations inside the model's context window."""

__version__ = "0.1.0"
