"""`POST /v1/agents/{name}/ag-ui`."""

from collections.abc import AsyncGenerator

from starlette.types import ASGIApp

from treadle.surfaces.http.ag_ui.interrupts import ProtocolError
from treadle.surfaces.http.ag_ui.operations import RUN_AGENT, RunAgent
from treadle.surfaces.http.ag_ui.stream import ExchangeStream, write_protocol_error
from treadle.surfaces.http.ag_ui.threads import begin_exchange
from treadle.surfaces.http.auth import get_streams
from treadle.surfaces.http.dependencies import ApiRequest, get_context
from treadle.surfaces.http.openai.run_answer import RUN_HEADER, SESSION_HEADER
from treadle.surfaces.http.routing import serve
from treadle.surfaces.http.stream_memory import ReaderMemory
from treadle.surfaces.http.streams import EventStream, refuse_if_full, split_bytes


@serve(RUN_AGENT)
async def run_agent(wanted: RunAgent, request: ApiRequest) -> ASGIApp:
    """Serve `agents.ag_ui`."""
    context = get_context(request)
    agent = context.visible_agent(wanted.name)
    refuse_if_full(request)
    try:
        exchange = await begin_exchange(context, agent, wanted.input, request)
    except ProtocolError as error:
        failure = write_protocol_error(wanted.input, error)
        return EventStream(_send(failure), split_bytes, request, will_reconnect=False)
    memory = ReaderMemory(get_streams(request).memory)
    stream = ExchangeStream(context, wanted.input, exchange, memory)
    headers = ((SESSION_HEADER, exchange.session_id), (RUN_HEADER, exchange.run_id))
    return EventStream(
        stream.read(),
        split_bytes,
        request,
        [(name.lower().encode(), value.encode()) for name, value in headers],
        will_reconnect=False,
        memory=memory,
    )


async def _send(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


ROUTES = [run_agent]
