"""An answer as a list of TypedDicts, and one as a union."""

from typing import Literal, TypedDict

from pydantic import BaseModel

import treadle


class City(TypedDict):
    name: str
    people: int


class Found(BaseModel):
    kind: Literal["found"]
    page: int


class Missing(BaseModel):
    kind: Literal["missing"]
    reason: str


with treadle.Engine("sqlite:///outputs.db") as engine:
    agent = treadle.Agent(name="cities", model="openai/gpt-5", output=list[City])
    cities = engine.run_sync(agent, "Name two cities.").output or []
    print(sum(city["people"] for city in cities))
    finder = treadle.Agent(name="finder", model="openai/gpt-5", output=Found | Missing)
    answer = engine.run_sync(finder, "Where is the word loom?").output
    print(answer)
