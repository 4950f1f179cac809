"""The access token that a server creates at its first start."""

from treadle.domain.access import SCOPES
from treadle.domain.errors import UsageError
from treadle.domain.ids import Instant
from treadle.operations.token_service import TokenService
from treadle.ports.access import CreateToken
from treadle.surfaces.server.listener import is_loopback

FIRST_TOKEN = "first start"


async def create_first_token(access: TokenService, host: str, now: Instant) -> str | None:
    """Create a token at the first start. Raises UsageError if other machines could connect before one exists."""
    known = await access.list()
    if not is_loopback(host) and not any(record.is_valid(now) for record in known):
        raise UsageError(
            f"There is no valid access token, and other machines can reach {host}. Create one first: treadle "
            "tokens create NAME --scope admin"
        )
    return None if known else (await access.create(CreateToken(FIRST_TOKEN, SCOPES))).secret
