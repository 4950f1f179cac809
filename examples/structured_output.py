"""Answers as values: a msgspec struct, a dataclass and a pydantic model, and one that grows while it is written."""

import asyncio
from dataclasses import dataclass

import msgspec
from pydantic import BaseModel, Field

import treadle
from treadle.testing import ScriptedModel, say


class Article(msgspec.Struct, forbid_unknown_fields=True):  # closed: providers can constrain the answer strictly
    title: str
    tags: list[str]


@dataclass
class Point:
    x: float
    y: float


class Person(BaseModel):
    name: str
    age: int = Field(ge=0)


REPLIES = (
    '{"title": "Looms", "tags": ["craft"]}',
    '{"x": 1.5, "y": 2.0}',
    '{"name": "Ada", "age": 36}',
    '{"title": "Looms and their weavers", "tags": ["craft", "history"]}',
)


async def main() -> None:
    async with treadle.Engine("sqlite:///:memory:") as engine:
        engine.add_model("scripted", ScriptedModel(*map(say, REPLIES)))
        editor = treadle.Agent(name="editor", model="scripted/any", output=Article)
        article = (await engine.run(editor, "Suggest an article.")).output
        plotter = treadle.Agent(name="plotter", model="scripted/any", output=Point)
        point = (await engine.run(plotter, "Choose a point.")).output
        registrar = treadle.Agent(name="registrar", model="scripted/any", output=Person)
        person = (await engine.run(registrar, "Name a person.")).output
        print(article, point, person, sep="\n")
        stream = engine.stream_output(editor, "Suggest another article.")
        async for part in stream:
            print("so far:", part)
        print("whole:", stream.result.output)


if __name__ == "__main__":
    asyncio.run(main())
