"""Images that a request links to: the server fetches them, under the rules of `web_fetch`."""

import asyncio
from collections.abc import Sequence

from msgspec import structs

from treadle.domain.messages import Image
from treadle.ports.tool import ToolError
from treadle.surfaces.http.dependencies import ApiRequest, get_services
from treadle.surfaces.http.openai.conversation import ImageLink, Turn, TurnPart
from treadle.surfaces.http.openai.refusals import InvalidParameterValue

MAX_LINKS = 20
"""Maximum images that are fetched for one request."""


async def fetch_images(
    turns: Sequence[Turn], max_bytes: int, request: ApiRequest, *, continues: bool
) -> Sequence[Turn]:
    """Return the turns with the images that they link to. A request that continues a session needs only those since
    the last turn of the assistant."""
    if continues:
        last = max((place for place, turn in enumerate(turns) if turn.speaker == "assistant"), default=-1)
        turns = [turn for place, turn in enumerate(turns) if place > last or turn.speaker == "instructions"]
    links = {part for turn in turns for part in turn.parts if isinstance(part, ImageLink)}
    if not links:
        return turns
    if len(links) > MAX_LINKS:
        raise InvalidParameterValue(
            min(link.param for link in links),
            f"The request links to {len(links)} images; at most {MAX_LINKS} are fetched. Embed them.",
        )
    ordered = list(links)
    images = await asyncio.gather(*(_fetch(link, max_bytes, request) for link in ordered))
    fetched = dict(zip(ordered, images, strict=True))
    return [structs.replace(turn, parts=tuple([_resolve(part, fetched) for part in turn.parts])) for turn in turns]


def _resolve(part: TurnPart, fetched: dict[ImageLink, Image]) -> TurnPart:
    return fetched[part] if isinstance(part, ImageLink) else part


async def _fetch(link: ImageLink, max_bytes: int, request: ApiRequest) -> Image:
    try:
        return await get_services(request).fetch_image(link.url, max_bytes)
    except ToolError as error:
        raise InvalidParameterValue(link.param, f"The image could not be fetched: {error}") from None
