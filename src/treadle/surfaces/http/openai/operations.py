"""The operations that OpenAI clients call. Hand-written routes serve them; the definitions describe them."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from treadle.operations.operation import NoParameters, Operation
from treadle.surfaces.http.openai.chat_schemas import ChatChunk, ChatCompletion, ChatRequest
from treadle.surfaces.http.openai.errors import ErrorBody
from treadle.surfaces.http.openai.response_schemas import (
    DeletedResponse,
    InputItems,
    ResponseObject,
    ResponseRequest,
    StreamEvent,
)

ERROR_STATUSES = (404, 409, 422, 429, 502, 504)


class ListedModel(Struct, frozen=True):
    """An agent, as OpenAI describes a model."""

    id: str
    created: int
    object: Literal["model"] = "model"
    owned_by: Literal["treadle"] = "treadle"


class ModelList(Struct, frozen=True):
    data: tuple[ListedModel, ...]
    object: Literal["list"] = "list"


class OneModel(Struct, frozen=True):
    name: str


class Complete(Struct, frozen=True):
    request: ChatRequest


class Respond(Struct, frozen=True):
    request: ResponseRequest


class OneResponse(Struct, frozen=True):
    response: str


class ShowResponse(Struct, frozen=True):
    response: str
    stream: bool = False
    starting_after: Annotated[int, Meta(ge=0)] | None = None
    """For a stream: the `sequence_number` of the last event that the client has."""
    include: tuple[str, ...] = ()
    """Has no effect."""
    include_obfuscation: bool = False
    """Has no effect."""


class ListInputItems(Struct, frozen=True):
    response: str
    after: str | None = None
    """The id of the last item that the client has."""
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    include: tuple[str, ...] = ()
    """Has no effect."""


LIST_MODELS = Operation(
    "models.list",
    "GET",
    "/v1/models",
    scope="run",
    request=NoParameters,
    response=ModelList,
    errors=ERROR_STATUSES,
    failure=ErrorBody,
    summary="List agents as models",
    description="Agents that the caller may not see, and agents whose files cannot be read, are left out.",
)
SHOW_MODEL = Operation(
    "models.show",
    "GET",
    "/v1/models/{name}",
    scope="run",
    request=OneModel,
    response=ListedModel,
    errors=ERROR_STATUSES,
    failure=ErrorBody,
    summary="Get an agent as a model",
)
COMPLETE = Operation(
    "chat.complete",
    "POST",
    "/v1/chat/completions",
    scope="run",
    request=Complete,
    response=ChatCompletion,
    errors=ERROR_STATUSES,
    whole_body="request",
    failure=ErrorBody,
    streams="on_request",
    frames=(ChatChunk, ErrorBody),
    summary="Send an agent a message as if it were a model",
    description="`model` is the name of an agent. It calls its own tools on the server, and asks the client to run "
    "those that the request brings: the next request has their results. With the header `X-Treadle- "
    "Session`, or `metadata.treadle_session`, it continues that session, which has the earlier messages: "
    "only the latest message of the request is used. When the client disconnects, the run is cancelled, "
    "unless the header `X-Treadle-On-Disconnect` is `keep`, or the request has an `Idempotency-Key`. "
    "`store` has no effect: the journal keeps every run.",
)
RESPOND = Operation(
    "responses.create",
    "POST",
    "/v1/responses",
    scope="run",
    request=Respond,
    response=ResponseObject,
    errors=ERROR_STATUSES,
    whole_body="request",
    failure=ErrorBody,
    streams="on_request",
    frames=(StreamEvent,),
    summary="Send an agent a message as if it were a model",
    description="`model` is the name of an agent. It calls its own tools on the server, and asks the client to run "
    "those that the request brings: the next request has their results. `previous_response_id` continues "
    "after that response, and `conversation` at the end of the session of that id; send only what is new "
    "then. With `background` the response comes at once, and the run continues. With `store: false` the "
    "response cannot be retrieved; the journal keeps its run.",
)
SHOW_RESPONSE = Operation(
    "responses.show",
    "GET",
    "/v1/responses/{response}",
    scope="run",
    request=ShowResponse,
    response=ResponseObject,
    errors=ERROR_STATUSES,
    failure=ErrorBody,
    streams="on_request",
    frames=(StreamEvent,),
    summary="Get a response as it is now",
    description="The journal has every run, also one that was started elsewhere. With `stream`, the events of the "
    "response follow from its start, or after the event with the number `starting_after`.",
)
LIST_INPUT_ITEMS = Operation(
    "responses.input_items",
    "GET",
    "/v1/responses/{response}/input_items",
    scope="run",
    request=ListInputItems,
    response=InputItems,
    errors=ERROR_STATUSES,
    failure=ErrorBody,
    summary="List the input of a response",
)
DELETE_RESPONSE = Operation(
    "responses.delete",
    "DELETE",
    "/v1/responses/{response}",
    scope="admin",
    request=OneResponse,
    response=DeletedResponse,
    errors=ERROR_STATUSES,
    failure=ErrorBody,
    summary="Delete a response with its session",
    description="The response must have ended and be the only one of its session. Otherwise delete the session.",
)
CANCEL_RESPONSE = Operation(
    "responses.cancel",
    "POST",
    "/v1/responses/{response}/cancel",
    scope="run",
    request=OneResponse,
    response=ResponseObject,
    errors=ERROR_STATUSES,
    failure=ErrorBody,
    summary="Cancel a response",
    description="A response that has ended stays as it is.",
)
OPERATIONS = (
    LIST_MODELS,
    SHOW_MODEL,
    COMPLETE,
    RESPOND,
    SHOW_RESPONSE,
    LIST_INPUT_ITEMS,
    CANCEL_RESPONSE,
    DELETE_RESPONSE,
)
