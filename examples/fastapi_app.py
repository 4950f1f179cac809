"""A web application with FastAPI: users log in, stream answers, and read their own sessions and no others.

uvicorn fastapi_app:app --app-dir examples"""

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials
from pydantic import BaseModel

import treadle
from treadle.testing import FunctionModel, say

USERS = {"ada": "looms-and-engines", "bob": "quantum-threads"}  # your own user database
TOKENS: dict[str, str] = {}
AGENT = treadle.Agent(name="desk", model="scripted/any")
ENGINE = treadle.Engine("sqlite:///desk.db")
ENGINE.add_model("scripted", FunctionModel(lambda _: say("Threads cross in silence.")))


@asynccontextmanager
async def open_engine(app: FastAPI) -> AsyncGenerator[None]:
    async with ENGINE:
        yield


app = FastAPI(lifespan=open_engine)


class Login(BaseModel):
    user: str
    password: str


class Question(BaseModel):
    text: str
    session: str | None = None


def find_user(given: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]) -> str:
    if (user := TOKENS.get(given.credentials)) is None:
        raise HTTPException(401, "Log in first.")
    return user


User = Annotated[str, Depends(find_user)]


@app.post("/login")
async def log_in(login: Login) -> dict[str, str]:
    if not secrets.compare_digest(USERS.get(login.user, ""), login.password) or not login.password:
        raise HTTPException(401, "Wrong user or password.")
    token = secrets.token_urlsafe()
    TOKENS[token] = login.user
    return {"token": token}


@app.post("/ask")
async def answer(question: Question, user: User) -> StreamingResponse:
    if question.session is not None:
        await read_session(question.session, user)  # 404 before the stream begins
    stream = ENGINE.stream_text(AGENT, question.text, user=user, session=question.session)
    return StreamingResponse(stream, media_type="text/plain")


@app.get("/sessions")
async def list_sessions(user: User) -> list[str]:
    return [session.session_id for session in await ENGINE.for_user(user).list_sessions()]


@app.get("/sessions/{session}")
async def read_session(session: str, user: User) -> list[str]:
    try:
        return [item.text for item in await ENGINE.for_user(user).messages(session)]
    except treadle.TreadleError as error:
        raise HTTPException(404, str(error)) from None
