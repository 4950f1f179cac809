"""Tools that fail: the model is told, and can go on."""

import treadle


@treadle.tool
def divide(a: float, b: float) -> float:
    """Divide two numbers."""
    return a / b


@treadle.tool
def find_user(name: str) -> str:
    """Find a user."""
    raise treadle.ToolError(f"There is no user {name}. Known users: ada, grace.")


agent = treadle.Agent(name="careful", model="openai/gpt-5", tools=[divide, find_user])
with treadle.Engine("sqlite:///careful.db") as engine:
    result = engine.run_sync(agent, "Divide 1 by 0, then find bob.")
    print(result.text)
    for step in engine.do_sync(engine.steps(result.run_id)).steps:
        print([(call.tool, call.status) for call in step.calls])
