"""The one shape in which results go back to the model: a line of JSON that says how the call ended, then its text
as it is. Escaped inside the JSON it would be longer, and models would quote it wrongly."""

SCHEMA = "treadle.tool_observation.v1"


def text_of(observed: str) -> str:
    """What the call told, without the line that says how it ended."""
    head, _, text = observed.partition("\n")
    return text if SCHEMA in head else observed


def observation(
    status: str, content: str, duration_ms: int, exit_code: int | None = None, truncated: bool = False
) -> str:
    exited = "" if exit_code is None else f',"exit_code":{exit_code}'
    cut = ',"truncated":true' if truncated else ',"truncated":false'
    return f'{{"schema":"{SCHEMA}","status":"{status}"{exited},"duration_ms":{duration_ms}{cut}}}\n{content}'
