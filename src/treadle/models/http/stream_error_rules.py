"""The rules for errors inside a stream that name no status: what their words say."""

from treadle.models.http.advice import SLOW_DOWN, USUALLY_PASSES
from treadle.models.http.error_rule import ErrorRule, Example, is_rate_limited
from treadle.models.http.patterns import match_any

RULES_OF_STREAMS = (
    ErrorRule(
        "rate_limited",
        SLOW_DOWN,
        (Example(None, '{"error":{"message":"Rate limit reached for the model"}}'),),
        (None,),
        accepts=is_rate_limited,
        retry=True,
        next_key=True,
        next_model=True,
    ),
    ErrorRule(
        "overloaded",
        USUALLY_PASSES,
        (
            Example(None, '{"error":{"message":"The engine is currently overloaded"}}'),
            Example(None, '{"error":"server busy, please try again.  maximum pending requests exceeded"}'),
            Example(None, '{"error_code":336100,"error_msg":"the server is busy, please try again later"}'),
        ),
        (None,),
        match_any(
            r"overload|\b(?:server|service|system|model)\b[^.]{0,20}\b(?:busy|high load)\b|繁忙|过载|负载",
            r"\b(?:at|maximum|over|temporarily) capacity\b|\bcapacity (?:is |was )?(?:temporarily )?exceeded\b",
        ),
        retry=True,
        next_model=True,
    ),
    ErrorRule(
        "server",
        USUALLY_PASSES,
        (
            Example(None, '{"error":{"message":"The server had an error while processing your request"}}'),
            Example(None, '{"error":"an unexpected error"}'),
            Example(None, ""),
        ),
        retry=True,
        next_model=True,
    ),
)
