"""`GET /v1/models`: agents, as OpenAI lists models."""

from contextlib import suppress

from litestar import get
from litestar.params import FromPath

from treadle.domain.errors import ConfigError
from treadle.operations.context import Context
from treadle.surfaces.http.dependencies import ApiRequest, get_context
from treadle.surfaces.http.openai.operations import ListedModel, ModelList
from treadle.surfaces.http.openai.route_docs import ROUTE_OPTIONS


@get("/v1/models", **ROUTE_OPTIONS)
async def list_models(request: ApiRequest) -> ModelList:
    """Return the agents that the caller may see and whose files can be read."""
    context, models = get_context(request), list[ListedModel]()
    for name in context.agents.names():
        if context.principal.sees(name):
            with suppress(ConfigError):
                models.append(_make_model(name, context))
    return ModelList(tuple(models))


@get("/v1/models/{name:str}", **ROUTE_OPTIONS)
async def show_model(name: FromPath[str], request: ApiRequest) -> ListedModel:
    return _make_model(name, get_context(request))


def _make_model(name: str, context: Context) -> ListedModel:
    """Return an agent as a model, created when its file was last written."""
    agent = context.visible_agent(name)
    return ListedModel(agent.name, int(context.agents.changed_at(agent.name)))


ROUTES = [list_models, show_model]
