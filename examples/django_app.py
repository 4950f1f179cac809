"""A Django application with synchronous views. Each process opens one engine.

python django_app.py runserver --noreload"""

import json
import os
from threading import Lock

import django  # pyright: ignore[reportMissingTypeStubs]
from django.conf import settings  # pyright: ignore[reportMissingTypeStubs]
from django.core.management import execute_from_command_line  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]
from django.http import HttpRequest, JsonResponse, StreamingHttpResponse  # pyright: ignore[reportMissingTypeStubs]
from django.urls import path  # pyright: ignore[reportMissingTypeStubs]

import treadle
from treadle.testing import FunctionModel, say

DATABASE = os.environ.get("DESK_DATABASE", "sqlite:///desk.db")  # several processes need PostgreSQL
AGENT = treadle.Agent(name="desk", model="scripted/any")


ENGINE = treadle.Engine(DATABASE)
ENGINE.add_model("scripted", FunctionModel(lambda _: say("Threads cross in silence.")))
OPENING = Lock()


def open_engine() -> treadle.Engine:
    """Return the engine of this process. It is opened at the first request, after the server has forked."""
    with OPENING:
        return ENGINE if ENGINE.is_open else ENGINE.open()


def read_question(request: HttpRequest) -> dict[str, str]:
    return json.loads(bytes(request.body))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]


def answer(request: HttpRequest) -> JsonResponse:
    question = read_question(request)
    result = open_engine().run_sync(AGENT, question["text"], session=question.get("session"))
    return JsonResponse({"text": result.text, "session": result.session_id})


def stream(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(
        open_engine().stream_text_sync(AGENT, read_question(request)["text"]), content_type="text/plain"
    )


def list_messages(request: HttpRequest, session: str) -> JsonResponse:
    engine = open_engine()
    return JsonResponse({"messages": [item.text for item in engine.do_sync(engine.messages(session))]})


urlpatterns = [path("answer", answer), path("stream", stream), path("sessions/<session>", list_messages)]
settings.configure(  # pyright: ignore[reportUnknownMemberType] -- no types
    ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1", "testserver"], SECRET_KEY="for this example"
)
django.setup()

if __name__ == "__main__":
    execute_from_command_line()
