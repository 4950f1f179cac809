"""Control tokens of chat templates, which some servers leave in the text of a reply."""

import re
from typing import Final

BAR: Final = r"(?:\||\uff5c|\|\|)"
CONTROL_TOKEN: Final = (
    rf"(?:<{BAR}[A-Za-z][\w\u2581/-]{{0,40}}{BAR}>|<\uff5c[A-Za-z][^\uff5c<>\n]{{0,40}}\uff5c>"
    r"|</?s>|<(?:bos|eos|pad|unk)>|<(?:start|end)_of_turn>|\[/?INST\]|<</?SYS>>)"
)
"""A token of any template: `<|name|>` of Qwen, Llama, Kimi, GLM and others, DeepSeek's form with wide bars, and the
older ones of Llama 2, Mistral and Gemma."""
END_TOKEN: Final = (
    rf"(?:<{BAR}(?:eo[smt](?:_id)?|eo[smt]_token|im_end|end|end_?of_?(?:text|turn|message|sequence|response)|return"
    rf"|END_OF_TURN_TOKEN|END_RESPONSE){BAR}>"
    rf"|<{BAR}end[\u2581_ ]of[\u2581_ ]sentence{BAR}>|</s>|<eos>|<end_of_turn>|\[/INST\])"
)
"""A token that marks the end of a reply."""
_LAST_TOKENS = re.compile(rf"(?<! )(?:{END_TOKEN}\s*)+\Z", re.IGNORECASE)
_ONLY_TOKENS = re.compile(rf"(?:{CONTROL_TOKEN}\s*)+", re.IGNORECASE)
_ANY_TOKEN = re.compile(CONTROL_TOKEN, re.IGNORECASE)
_OPEN_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})", re.MULTILINE)
_MAX_TAIL_CHARACTERS = 400


def strip_end_tokens(text: str) -> str:
    """Return a text without the tokens that mark its end. A text that is nothing else, has other control tokens, or
    quotes them (in code, or as a word of a sentence) is returned unchanged."""
    if not text.rstrip().endswith((">", "]")):
        return text
    start = max(0, len(text) - _MAX_TAIL_CHARACTERS)
    found = _LAST_TOKENS.search(text, start)
    if found is None:
        return text
    kept = text[: found.start()].rstrip()
    if not kept or _ANY_TOKEN.search(kept) or len(_OPEN_FENCE.findall(kept)) % 2 or "<s>" in kept:
        return text
    return kept


def is_only_tokens(text: str) -> bool:
    """Return whether a text holds control tokens and nothing else."""
    return _ONLY_TOKENS.fullmatch(text.strip()) is not None
