"""Which known models accept an output schema with a request. Unknown hosts and models get it in the prompt only:
servers refuse requests with a field that they do not know."""

import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from treadle.domain.models import StructuredOutput
from treadle.domain.providers import ApiMode, ProviderConfig

OLLAMA_PORT: Final = 11434
_OPENAI_MODELS = (
    r"gpt-4o(?!-2024-05-13|.*(?:audio|realtime|search|transcribe|tts))|gpt-4\.1|gpt-(?:[5-9]|\d\d)"
    r"|o1(?!-(?:mini|preview))|o[3-9]"
)
_CLAUDE_MODELS = r"claude-(?:opus-4[-.][1-9](?!\d)|(?:sonnet|haiku)-4[-.][5-9](?!\d)|[a-z]+-[5-9](?!\d))"
_GEMINI_MODELS = r"gemini-(?:2\.[05]|[3-9])"
_MISTRAL_MODELS = r"(?:mistral-(?:small|medium|large)|ministral|pixtral|codestral-(?:\d|latest))"


class _KnownModels(NamedTuple):
    """Models of one host in some wire formats, and when they accept a schema."""

    host: re.Pattern[str]
    modes: tuple[ApiMode, ...]
    models: re.Pattern[str]
    when: StructuredOutput


_KNOWN: Final = (
    _KnownModels(
        re.compile(r"api\.openai\.com"),
        ("chat_completions", "responses"),
        re.compile(rf"(?:ft:)?(?:{_OPENAI_MODELS})"),
        "always",
    ),
    _KnownModels(re.compile(r"api\.anthropic\.com"), ("anthropic_messages",), re.compile(_CLAUDE_MODELS), "always"),
    _KnownModels(
        re.compile(r"openrouter\.ai"),
        ("chat_completions",),
        re.compile(rf"openai/(?:{_OPENAI_MODELS})|anthropic/{_CLAUDE_MODELS}"),
        "always",
    ),
    _KnownModels(
        re.compile(r"generativelanguage\.googleapis\.com"),
        ("chat_completions",),
        re.compile(rf"(?:models/)?{_GEMINI_MODELS}"),
        "without_tools",
    ),
    _KnownModels(
        re.compile(r"api\.mistral\.ai"), ("chat_completions",), re.compile(_MISTRAL_MODELS), "without_tools"
    ),
)


def find_structured_output(model: str, config: ProviderConfig) -> StructuredOutput:
    """Return when a model accepts an output schema, judged by its host, its wire format and its name."""
    url = urlsplit(config.base_url)
    if config.local and url.port == OLLAMA_PORT and config.mode == "chat_completions":
        return "without_tools"  # with a schema, Ollama prevents tool calls
    host = url.hostname or ""
    for known in _KNOWN:
        if known.host.fullmatch(host) and config.mode in known.modes and known.models.match(model):
            return known.when
    return "never"
