"""`GET /v1/models`: agents, as OpenAI lists models."""

from contextlib import suppress
from pathlib import Path
from typing import Literal

from litestar import Router, get
from litestar.params import FromPath
from msgspec import Struct

from treadle.domain.errors import ConfigError
from treadle.surfaces.http.auth import principal_of
from treadle.surfaces.http.dependencies import Asked, seen_agent, served_of
from treadle.surfaces.http.openai.route_docs import speaks


class Model(Struct, frozen=True):
    id: str
    created: int
    object: Literal["model"] = "model"
    owned_by: Literal["treadle"] = "treadle"


class ModelList(Struct, frozen=True):
    data: tuple[Model, ...]
    object: Literal["list"] = "list"


@get("/v1/models", **speaks("List agents as models"))
async def list_models(request: Asked) -> ModelList:
    """The agents that the token may see. Agents with an invalid file are left out."""
    principal, models = principal_of(request), list[Model]()
    for name in served_of(request).home.agents():
        if principal.sees(name):
            with suppress(ConfigError):
                models.append(_model(name, request))
    return ModelList(tuple(models))


@get("/v1/models/{name:str}", **speaks("Get an agent as a model"))
async def show(name: FromPath[str], request: Asked) -> Model:
    return _model(name, request)


def _model(name: str, request: Asked) -> Model:
    """It was made when its file was last written."""
    agent = seen_agent(name, request)
    file, _ = served_of(request).home.files_of_agent(agent.name)
    return Model(agent.name, _written_at(file))


def _written_at(file: Path) -> int:
    """0: it has not been; the default agent is one where nothing is set."""
    try:
        return int(file.stat().st_mtime)
    except OSError:
        return 0


ROUTES = Router("/", route_handlers=[list_models, show], tags=["models"])
