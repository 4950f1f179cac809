"""`GET /v1/models`: agents, as OpenAI lists models."""

from contextlib import suppress

from starlette.responses import Response

from treadle.domain.errors import ConfigError
from treadle.operations.context import Context
from treadle.operations.operation import NoParameters
from treadle.surfaces.http.dependencies import ApiRequest, get_context
from treadle.surfaces.http.openai.operations import LIST_MODELS, SHOW_MODEL, ListedModel, ModelList, OneModel
from treadle.surfaces.http.routing import make_json_response, serve


@serve(LIST_MODELS)
async def list_models(_: NoParameters, request: ApiRequest) -> Response:
    """Return the agents that the caller may see and whose files can be read."""
    context, models = get_context(request), list[ListedModel]()
    for name in context.agents.names():
        if context.principal.sees(name):
            with suppress(ConfigError):
                models.append(_make_model(name, context))
    return make_json_response(ModelList(tuple(models)))


@serve(SHOW_MODEL)
async def show_model(wanted: OneModel, request: ApiRequest) -> Response:
    return make_json_response(_make_model(wanted.name, get_context(request)))


def _make_model(name: str, context: Context) -> ListedModel:
    """Return an agent as a model, created when its file was last written."""
    agent = context.visible_agent(name)
    return ListedModel(agent.name, int(context.agents.changed_at(agent.name)))


ROUTES = [list_models, show_model]
