"""The wire formats by name. Each is imported on first use."""

from typing import TYPE_CHECKING

from treadle.domain.providers import ApiMode

if TYPE_CHECKING:
    from treadle.models.http.client import WireFormat


def load_format(mode: ApiMode) -> "WireFormat":
    match mode:
        case "anthropic_messages":
            from treadle.models.formats import anthropic_messages

            return anthropic_messages.FORMAT
        case "chat_completions":
            from treadle.models.formats import chat_completions

            return chat_completions.FORMAT
        case "responses":
            from treadle.models.formats import responses

            return responses.FORMAT
