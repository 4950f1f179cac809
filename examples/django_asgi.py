"""A Django application with the HTTP API of Treadle below /agents, for the users who have signed in to Django.

uvicorn django_asgi:application"""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import django  # pyright: ignore[reportMissingTypeStubs]
from django.conf import settings  # pyright: ignore[reportMissingTypeStubs]
from django.contrib.sessions.backends.signed_cookies import SessionStore  # pyright: ignore[reportMissingTypeStubs]
from django.core.asgi import get_asgi_application  # pyright: ignore[reportMissingTypeStubs]
from django.http import HttpRequest, JsonResponse  # pyright: ignore[reportMissingTypeStubs]
from django.urls import path  # pyright: ignore[reportMissingTypeStubs]
from starlette.requests import Request

import treadle
from treadle.testing import FunctionModel, say

MOUNT = "/agents"
ENGINE = treadle.Engine(os.environ.get("DESK_DATABASE", "sqlite:///desk.db"))
ENGINE.add_model("scripted", FunctionModel(lambda _: say("Threads cross in silence.")))
ENGINE.add_agents(treadle.Agent(name="desk", model="scripted/any"))


def sign_in(request: HttpRequest, user: str) -> JsonResponse:
    request.session["user"] = user  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] -- stands for a login
    return JsonResponse({"user": user})


def find_user(request: Request) -> str | None:
    """Return who has signed in to Django."""
    return SessionStore(request.cookies.get("sessionid")).get("user")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


urlpatterns = [path("login/<user>", sign_in)]
settings.configure(  # pyright: ignore[reportUnknownMemberType] -- no types
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["127.0.0.1"],
    SECRET_KEY="for this example",
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
)
django.setup()
PAGES = get_asgi_application()
API = treadle.asgi(ENGINE, authenticate=find_user)


async def application(
    scope: MutableMapping[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """Give requests below /agents to Treadle, which also opens the engine when the server starts."""
    if scope["type"] == "lifespan":
        await API(scope, receive, send)
    elif scope["path"].startswith(f"{MOUNT}/"):
        await API({**scope, "root_path": scope.get("root_path", "") + MOUNT}, receive, send)
    else:
        await PAGES(scope, receive, send)  # pyright: ignore[reportUnknownMemberType]
