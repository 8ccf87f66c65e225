"""A demonstration that needs no key and no network: `python -m deploy.demo`, or `make demo`.

An imaginary coding agent works on an imaginary shop. Its requests are real ones: they go through a real compactd to a strict fake provider,
with the full history each time, as any client sends them.
"""
