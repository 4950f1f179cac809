"""Images that a request links to: the server fetches them, under the rules of `web_fetch`."""

import asyncio
from collections.abc import Iterable, Sequence

from msgspec import structs

from treadle.domain.messages import Image
from treadle.ports.tool import ToolError
from treadle.surfaces.http.dependencies import ApiRequest, get_services
from treadle.surfaces.http.openai.conversation import ImageLink, MadeResult, Turn, TurnPart, find_latest
from treadle.surfaces.http.openai.refusals import InvalidParameterValue

MAX_LINKS = 20
"""Maximum images that are fetched for one request."""


async def fetch_images(
    turns: Sequence[Turn], max_bytes: int, request: ApiRequest, *, continues: bool
) -> Sequence[Turn]:
    """Return the turns with the images that they link to. A request that continues a session needs only those since
    the last turn of the assistant."""
    if continues:
        latest = find_latest(turns)
        turns = [turn for turn in turns if turn.speaker == "instructions" or turn in latest]
    links = [link for turn in turns for part in turn.parts for link in _find_links(part)]
    if not links:
        return turns
    if len(links) > MAX_LINKS:
        raise InvalidParameterValue(
            links[0].param,
            f"The request links to {len(links)} images; at most {MAX_LINKS} are fetched. Embed them.",
        )
    images = await asyncio.gather(*(_fetch(link, max_bytes, request) for link in links))
    fetched = dict(zip(links, images, strict=True))
    return [structs.replace(turn, parts=tuple([_resolve(part, fetched) for part in turn.parts])) for turn in turns]


def _find_links(part: TurnPart) -> Iterable[ImageLink]:
    match part:
        case ImageLink():
            return (part,)
        case MadeResult(images=images):
            return [image for image in images if isinstance(image, ImageLink)]
        case _:
            return ()


def _resolve(part: TurnPart, fetched: dict[ImageLink, Image]) -> TurnPart:
    match part:
        case ImageLink():
            return fetched[part]
        case MadeResult(images=images):
            shown = [fetched[image] if isinstance(image, ImageLink) else image for image in images]
            return structs.replace(part, images=tuple(shown))
        case _:
            return part


async def _fetch(link: ImageLink, max_bytes: int, request: ApiRequest) -> Image:
    try:
        return await get_services(request).fetch_image(link.url, max_bytes)
    except ToolError as error:
        raise InvalidParameterValue(link.param, f"The image could not be fetched: {error}") from None
