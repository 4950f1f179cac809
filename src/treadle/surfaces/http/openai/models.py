"""`GET /v1/models`: agents, as OpenAI lists models."""

from contextlib import suppress

from litestar import get
from litestar.params import FromPath

from treadle.domain.errors import ConfigError
from treadle.operations.context import Context
from treadle.surfaces.http.dependencies import Asked, context_of
from treadle.surfaces.http.openai.operations import Model, ModelList
from treadle.surfaces.http.openai.route_docs import SPOKEN


@get("/v1/models", **SPOKEN)
async def list_models(request: Asked) -> ModelList:
    """Return the agents that the caller may see and whose files can be read."""
    context, models = context_of(request), list[Model]()
    for name in context.agents.names():
        if context.principal.sees(name):
            with suppress(ConfigError):
                models.append(_model(name, context))
    return ModelList(tuple(models))


@get("/v1/models/{name:str}", **SPOKEN)
async def show(name: FromPath[str], request: Asked) -> Model:
    return _model(name, context_of(request))


def _model(name: str, context: Context) -> Model:
    """Return an agent as a model, created when its file was last written."""
    agent = context.visible_agent(name)
    return Model(agent.name, int(context.agents.changed_at(agent.name)))


ROUTES = [list_models, show]
