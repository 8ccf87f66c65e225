"""Make `app/models.json`: windows, encodings and quirks of the models of seven providers.

Run at development time, by hand; the result is checked in and reviewed as a diff, and nothing here is imported by the
application. Three sources: the tables below for what the others miss or get wrong, each with its source; the price file
inside litellm's wheel (unpacked, never imported: that costs 200 MB); the data of the `genai-prices` package for models that
the first two don't know.

    pip install genai-prices && pip download litellm --no-deps
    python deploy/generate_models.py litellm-*.whl > app/models.json

What counts is the input limit. Published figures are often the whole window, input and output together.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from app.registry import Registry, Row, Table

LITELLM_FILE = "litellm/model_prices_and_context_window_backup.json"
LITELLM_PREFIX = {
    "openai": "",
    "text-completion-openai": "",
    "anthropic": "",
    "vertex_ai-language-models": "",
    "gemini": "gemini/",
    "deepseek": "deepseek/",
    "mistral": "mistral/",
    "fireworks_ai": "fireworks_ai/",
    "xai": "xai/",
}
GENAI_PROVIDERS = ("anthropic", "deepseek", "google", "mistral", "openai", "x-ai")

# OpenAI from GPT-5 on: the published window holds input and output, the input limit is what is left.
# source: https://platform.openai.com/docs/models/gpt-5.1 (400,000 = 272,000 + 128,000),
# …/gpt-5.4 (1,050,000 = 922,000 + 128,000), …/gpt-5-chat-latest (128,000 = 111,616 + 16,384)
INPUT_OF_WINDOW = {128_000: 111_616, 400_000: 272_000, 1_050_000: 922_000}

# Not for conversations, or with figures nobody can use (litellm gives 4,096 and less where Fireworks' own list says nothing).
NO_CHAT = re.compile(
    r"embed|rerank|whisper|transcri|tts|realtime|-live|moderation|dall-e|imagen|veo-|lyria|(^|/)(flux|stable|ssd|playground)"
    r"|ocr|-draft|llama-?guard|container|native-audio|voice|-base(-|$)|starcoder|stablecode|pythia|-fim-"
)
LEAST_CHAT_WINDOW = 8_192

# What genai-prices lists for families that litellm lists with better figures: not taken.
GENAI_SKIP = re.compile(
    r"^gpt-5|^gpt-6|^claude.*-5\.0|^gemini-.*image|^codestral$|^codestral-25|[@-]$|^ft:|-2025$|^(text|davinci|babbage|computer)"
)

OPENAI = "https://platform.openai.com/docs/models"
CLAUDE = "https://platform.claude.com/docs/en"
GEMINI = "https://ai.google.dev/gemini-api/docs"
MYTHOS = ("adaptive_thinking", "cache_min=2048", "no_manual_thinking", "no_sampling", "supports_server_compaction")
OVERLAY: dict[str, tuple[int, tuple[str, ...], str]] = {
    # name or glob: (input limit, quirks, source)
    "chatgpt-4o-latest": (128_000, (), f"{OPENAI}/chatgpt-4o-latest"),
    "gpt-3.5-turbo*": (16_385, (), f"{OPENAI}/gpt-3.5-turbo"),
    "gpt-4-0125-preview": (128_000, (), f"{OPENAI}/gpt-4-turbo"),
    "gpt-4-1106-preview": (128_000, (), f"{OPENAI}/gpt-4-turbo"),
    "gpt-4-turbo-preview": (128_000, (), f"{OPENAI}/gpt-4-turbo"),
    "gpt-4-vision-preview": (128_000, (), f"{OPENAI}/gpt-4-turbo"),
    "gpt-4-32k*": (32_768, (), f"{OPENAI}/gpt-4"),
    "gpt-4-turbo*": (128_000, (), f"{OPENAI}/gpt-4-turbo"),
    "gpt-4.1*": (1_047_576, (), f"{OPENAI}/gpt-4.1"),
    "gpt-4o*": (128_000, (), f"{OPENAI}/gpt-4o"),
    "gpt-5*-codex*": (272_000, (), f"{OPENAI}/gpt-5.1-codex-max"),
    "gpt-5*-codex-spark*": (128_000, (), "https://openai.com/index/introducing-gpt-5-3-codex-spark/"),
    "gpt-5*-chat*": (111_616, (), f"{OPENAI}/gpt-5-chat-latest (128,000 in all, 16,384 out)"),
    "gpt-5-pro": (272_000, (), f"{OPENAI}/gpt-5-pro (400,000 in all; Azure's row in litellm says 272,000)"),
    "o1*": (200_000, (), f"{OPENAI}/o1"),
    "o3*": (200_000, (), f"{OPENAI}/o3"),
    "o4*": (200_000, (), f"{OPENAI}/o4-mini"),
    "codex-mini-latest": (200_000, (), f"{OPENAI}/codex-mini-latest"),
    "gemini-1.5-flash": (1_048_576, (), f"{GEMINI}/models"),
    "gemini-1.5-pro": (2_097_152, (), f"{GEMINI}/models"),
    "gemini-2.0-flash": (1_048_576, (), f"{GEMINI}/models"),
    "gemini-2.0-flash-lite": (1_048_576, (), f"{GEMINI}/models"),
    "gemini-3-pro-preview": (1_048_576, (), f"{GEMINI}/gemini-3"),
    "claude-3-5-haiku": (200_000, ("cache_min=2048",), f"{CLAUDE}/build-with-claude/prompt-caching"),
    "claude-opus-4-0": (200_000, ("cache_min=1024",), f"{CLAUDE}/about-claude/models/overview"),
    "claude-opus-4": (200_000, ("cache_min=1024",), f"{CLAUDE}/about-claude/models/overview"),
    "claude-opus-4-1": (200_000, ("cache_min=1024",), f"{CLAUDE}/build-with-claude/prompt-caching"),
    "claude-sonnet-4-0": (200_000, ("cache_min=1024",), f"{CLAUDE}/about-claude/models/overview"),
    "claude-sonnet-4": (200_000, ("cache_min=1024",), f"{CLAUDE}/about-claude/models/overview"),
    "claude-mythos-preview": (
        1_000_000,
        (*MYTHOS, "thinking_always_on"),
        f"{CLAUDE}/build-with-claude/thinking (a name without a version)",
    ),
}

# Which Claude takes the compact_20260112 edit: https://platform.claude.com/docs/en/build-with-claude/compaction
SERVER_COMPACTION = {
    "claude-fable-5": True, "claude-fable-5-1": True,
    "claude-opus-4-5": False, "claude-opus-4-6": True, "claude-opus-4-7": True, "claude-opus-4-8": True,
    "claude-opus-5": True, "claude-opus-5-5": True,
    "claude-sonnet-4-5": False, "claude-sonnet-4-6": True, "claude-sonnet-5": True, "claude-sonnet-5-5": True,
    "claude-haiku-4-5": False, "claude-haiku-5-5": True,
}  # fmt: skip

QUIRKS = {
    "adaptive_thinking": "takes thinking.type adaptive (Claude 4.6+)",
    "alternating_roles": "two user items in a row are refused, or user after tool (Mistral, strict chat templates)",
    "binds_thinking": "a thinking block is valid behind its own prefix only (Claude 5.1+)",
    "cache_min=N": "tokens below which the provider caches nothing",
    "image_base=N, image_tile=N": "tokens of an image: base + tile for each 512 px tile (OpenAI, tile models)",
    "image_crop=N": "tokens of each tile of an image, whose side is two thirds of its short side (Gemini before 3)",
    "image_max_edge=N, image_max_tokens=N": "pixels of the long edge and tokens to which an image is scaled down (Claude)",
    "image_max_patches=N, image_patch=X": "tokens of an image: X for each 32 px patch, at most N patches (OpenAI, patch models)",
    "image_tokens=N": "tokens of an image, whatever its size (Gemini 3+)",
    "keeps_reasoning": "reasoning of assistant items with tool calls has to stay in all later requests (DeepSeek 4+)",
    "max_completion_tokens": "chat refuses max_tokens, takes max_completion_tokens",
    "no_manual_thinking": "refuses thinking.type enabled (Claude 4.7+)",
    "no_sampling": "refuses temperature, top_p, top_k that are not the default",
    "supports_server_compaction": "takes Anthropic's compact_20260112 edit",
    "thinking_always_on": "refuses thinking.type disabled",
    "thinks": "thinks unless told otherwise, and its output limit has to hold thoughts and answer",
    "token_ratio=X": "provider's tokens for each token counted locally, until a session has measured its own",
}

# Quirks of whole families, known models or not; matched against the name without host and vendor, general to special.
# Images: https://platform.openai.com/docs/guides/images-vision (calculating costs), https://ai.google.dev/gemini-api/docs/media-resolution
# Roles: datapizza-labs/datapizza-ai#98, pipecat-ai/pipecat-flows#178, vllm-project/vllm#6862. Reasoning:
# https://api-docs.deepseek.com/guides/thinking_mode, https://ai.google.dev/gemini-api/docs/thinking. Parameters:
# https://platform.openai.com/docs/guides/reasoning
REASONING = ("max_completion_tokens", "no_sampling", "thinks")
FAMILIES: dict[str, tuple[str, ...]] = {
    "*mistral*": ("alternating_roles",),
    "*mixtral*": ("alternating_roles",),
    "ministral*": ("alternating_roles",),
    "magistral*": ("alternating_roles",),
    "codestral*": ("alternating_roles",),
    "devstral*": ("alternating_roles",),
    "pixtral*": ("alternating_roles",),
    "voxtral*": ("alternating_roles",),
    "gemma*": ("alternating_roles",),
    "llama-2*": ("alternating_roles",),
    "llama2*": ("alternating_roles",),
    "llama-v2*": ("alternating_roles",),
    "claude-fable-*": ("thinking_always_on",),
    "claude-mythos-*": ("thinking_always_on",),
    "deepseek-r*": ("thinks",),
    "deepseek?v[4-9]*": ("keeps_reasoning", "thinks"),
    "deepseek-flash*": ("keeps_reasoning", "thinks"),
    "gemini-*": ("image_crop=258",),
    "gemini-2.5*": ("thinks",),
    "gemini-*-latest": ("-image_crop", "image_tokens=1120", "thinks"),
    "gemini-[3-9]*": ("-image_crop", "image_tokens=1120", "thinks"),
    "gpt-4*": ("image_base=85", "image_tile=170"),
    "gpt-4o-mini*": ("image_base=2833", "image_tile=5667"),
    "gpt-4.1-mini*": ("image_patch=1.62", "image_max_patches=1536"),
    "gpt-4.1-nano*": ("image_patch=2.46", "image_max_patches=1536"),
    "o[1-9]*": (*REASONING, "image_base=75", "image_tile=150"),
    "o4-mini*": ("image_patch=1.72", "image_max_patches=1536"),
    "computer-use*": ("image_base=65", "image_tile=129"),
    "gpt-[5-9]*": (*REASONING, "image_patch=1.2", "image_max_patches=30000"),
    "gpt-5": ("-image_patch", "image_base=70", "image_tile=140"),
    "gpt-5-20*": ("-image_patch", "image_base=70", "image_tile=140"),
    "gpt-5-chat*": ("-image_patch", "-thinks", "image_base=70", "image_tile=140"),
    "gpt-5-mini*": ("image_patch=1.62", "image_max_patches=1536"),
    "gpt-5-nano*": ("image_patch=2.46", "image_max_patches=1536"),
    "gpt-5.[123]*": ("image_max_patches=1536",),
    "gpt-5.4*": ("image_max_patches=10000",),
    "gpt-5.4-mini*": ("image_patch=1.62", "image_max_patches=1536"),
    "gpt-5.4-nano*": ("image_patch=2.46", "image_max_patches=1536"),
    "gpt-5.5*": ("image_max_patches=10000",),
}  # fmt: skip

# source: tiktoken's own table of models (tiktoken/model.py)
LEGACY = re.compile(r"^(ft:)?(gpt-3\.5|gpt-35|gpt-4$|gpt-4-|davinci|babbage)")


def from_litellm(wheel: Path) -> Iterator[Row]:
    """Rows of the providers we know, named as their own APIs name them."""
    data: dict[str, dict[str, Any]] = json.loads(zipfile.ZipFile(wheel).read(LITELLM_FILE))
    for name, about in sorted(data.items()):
        provider, mode, window = about.get("litellm_provider"), about.get("mode"), about.get("max_input_tokens")
        if provider not in LITELLM_PREFIX or not window or window < LEAST_CHAT_WINDOW:
            continue
        if mode not in ("chat", "responses", "completion") and not (
            provider == "gemini" and mode == "image_generation"
        ):
            continue
        bare = name.removeprefix(LITELLM_PREFIX[provider])
        if NO_CHAT.search(bare) or bare.startswith("ft:"):
            continue
        if provider == "fireworks_ai" and not bare.startswith("accounts/"):
            continue  # the short form of a row that is there in full
        if provider == "vertex_ai-language-models" and (f"gemini/{name}" in data or not name.startswith("gemini-")):
            continue  # the Gemini API's own figure is there
        if re.match(r"gpt-[5-9]|chat-latest", bare):
            window = INPUT_OF_WINDOW.get(int(window), int(window))
        yield Row(bare, int(window), quirks=tuple(sorted(_quirks(bare, provider, about))))


def _quirks(name: str, provider: str, about: dict[str, Any]) -> Iterator[str]:
    if provider == "anthropic":
        undated = re.sub(r"-\d{8}$", "", name)
        listed = SERVER_COMPACTION.get(undated)
        said = bool(about.get("supports_anthropic_compaction"))
        if listed is not None and listed != said:
            print(f"{name}: server compaction is {listed} in our table, {said} in litellm's", file=sys.stderr)
        if said if listed is None else listed:
            yield "supports_server_compaction"
        if about.get("thinking_always_on"):
            yield "thinking_always_on"
    elif about.get("supports_sampling_params") is False:
        yield "no_sampling"
    if least := about.get("prompt_cache_min_tokens"):
        yield f"cache_min={int(least)}"


def from_genai_prices() -> Iterator[Row]:
    """Rows of older models that litellm has dropped, under every exact name that the package knows for them."""
    from genai_prices.data import providers

    for provider in providers:
        if provider.id not in GENAI_PROVIDERS:
            continue
        for model in provider.models:
            for name in {model.id, *_names(model.match)}:
                foreign = "/" in name or (provider.id == "google" and "claude" in name)
                if not model.context_window or foreign or NO_CHAT.search(name) or GENAI_SKIP.search(name):
                    continue
                yield Row(name, model.context_window)


def _names(clause: Any) -> Iterator[str]:
    for name in (getattr(clause, "equals", None), getattr(clause, "starts_with", None)):
        if name:
            yield name
    for inner in getattr(clause, "or_", ()):
        yield from _names(inner)


def merged(wheel: Path) -> list[Row]:
    """All rows, each name once, with the encoding that tiktoken names for it."""
    rows = {row.name: row for row in from_litellm(wheel)}
    rows |= {name: Row(name, window, quirks=tuple(sorted(quirks))) for name, (window, quirks, _) in OVERLAY.items()}
    known = Table(rows.values())
    older = sorted(from_genai_prices(), key=lambda row: (row.name, -row.context_window))
    rows |= {row.name: row for row in older if (found := known.find(row.name)) is None or "*" in found.name}
    return [
        Row(row.name, row.context_window, "cl100k_base" if LEGACY.match(row.name) else "o200k_base", row.quirks)
        for _, row in sorted(rows.items())
    ]


def needed(rows: list[Row]) -> list[Row]:
    """Without the rows that the registry would find by itself under a shorter name, dated variants above all."""
    kept = [row for row in rows if "*" in row.name]
    for row in sorted((row for row in rows if "*" not in row.name), key=lambda row: (len(row.name), row.name)):
        found = Table(kept, FAMILIES.items()).find(row.name)
        if found is None or "*" in found.name or _values(found) != _values(row):
            kept.append(row)
    return sorted(kept, key=lambda row: row.name)


def _values(row: Row) -> tuple[int, str, tuple[str, ...]]:
    return row.context_window, row.encoding, row.quirks


def text(rows: list[Row], wheel: Path) -> str:
    """The JSON text, one model a line; what a line leaves out is as `defaults` says."""
    head = {
        "about": "Input limits (tokens), encodings and quirks. Made by deploy/generate_models.py: change that, not this.",
        "sources": [
            f"litellm {wheel.name.split('-')[1]}: {LITELLM_FILE} (MIT)",
            f"genai-prices {version('genai-prices')} (MIT)",
            *sorted({f"{name}: {source}" for name, (_, _, source) in OVERLAY.items()}),
        ],
        "defaults": {"encoding": "o200k_base", "quirks": []},
        "quirks": QUIRKS,
    }
    models: dict[str, dict[str, Any]] = {}
    for row in rows:
        models[row.name] = {"context_window": row.context_window}
        if row.encoding != "o200k_base":
            models[row.name]["encoding"] = row.encoding
        if row.quirks:
            models[row.name]["quirks"] = row.quirks
    opening = json.dumps(head, indent=1, ensure_ascii=False).removesuffix("\n}")
    return f'{opening},\n "families": {_lines(FAMILIES)},\n "models": {_lines(models)}\n}}\n'


def _lines(entries: Mapping[str, object]) -> str:
    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(about)}" for name, about in entries.items()) + "\n }"


def main() -> None:
    wheel = Path(sys.argv[1])
    rows = needed(merged(wheel))
    print(text(rows, wheel), end="")
    table = Table(rows, FAMILIES.items())
    registry = Registry({}, lambda _: None, table)
    lost = [
        row.name
        for row in merged(wheel)
        if "*" not in row.name and registry.lookup(row.name).context_window != row.context_window
    ]
    if lost:
        sys.exit(f"these names would get another window than their sources say: {lost}")


if __name__ == "__main__":
    main()
