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
_LAST_TOKENS = rf"(?<! )(?:{END_TOKEN}\s*)+\Z"
_ONLY_TOKENS = rf"(?:{CONTROL_TOKEN}\s*)+"
_OPEN_FENCE = r"^[ \t]*(?:`{3,}|~{3,})"
_TOKEN_ENDS = (">", "]")
_CALL_SIGNS = ("<", "[", "{", "(", "to=", "function")
_MAX_TAIL_CHARACTERS = 400


def strip_end_tokens(text: str) -> str:
    """Return a text without the tokens that mark its end. A text that is nothing else, has other control tokens, or
    quotes them (in code, or as a word of a sentence) is returned unchanged."""
    if not text.rstrip().endswith(_TOKEN_ENDS):
        return text
    start = max(0, len(text) - _MAX_TAIL_CHARACTERS)
    found = re.compile(_LAST_TOKENS, re.IGNORECASE).search(text, start)
    if found is None:
        return text
    kept = text[: found.start()].rstrip()
    if not kept or _has_token(kept) or _has_open_fence(kept) or "<s>" in kept:
        return text
    return kept


def is_only_tokens(text: str) -> bool:
    """Return whether a text holds control tokens and nothing else."""
    text = text.strip()
    return text.endswith(_TOKEN_ENDS) and re.fullmatch(_ONLY_TOKENS, text, re.IGNORECASE) is not None


def may_hold_call(text: str) -> bool:
    """Return whether a text contains a sign that each form of a written call has. Most short answers contain none,
    and the patterns for the forms need not be compiled for them."""
    return any(sign in text for sign in _CALL_SIGNS)


def _has_token(text: str) -> bool:
    return re.search(CONTROL_TOKEN, text, re.IGNORECASE) is not None


def _has_open_fence(text: str) -> bool:
    return len(re.findall(_OPEN_FENCE, text, re.MULTILINE)) % 2 == 1
