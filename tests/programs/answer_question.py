"""The agent asks its user a question."""

import treadle

agent = treadle.Agent(name="tailor", model="openai/gpt-5", tools=["clarify"])


def answer(question: treadle.OpenQuestion) -> str:
    print("question:", question.question)
    return "Blue."


with treadle.Engine("sqlite:///tailor.db") as engine:
    print(engine.run_sync(agent, "Make me a shirt.", on_clarify=answer).text)
