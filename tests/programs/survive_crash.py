"""The first start dies in the middle of a run. The second start finishes it, and repeats nothing."""

import os
from pathlib import Path

import treadle

calls = Path("calls.txt")


@treadle.tool
def charge(amount: int) -> str:
    """Charge the card."""
    with calls.open("a") as file:
        file.write(f"charged {amount}\n")
    return "charged"


@treadle.tool(effect="read")
def check(order: str) -> str:
    """Check an order."""
    if not Path("died").exists():
        Path("died").touch()
        os._exit(9)
    return f"{order} is fine"


agent = treadle.Agent(name="shop", model="openai/gpt-5", tools=[charge, check])
with treadle.Engine("sqlite:///shop.db") as engine:
    engine.add_agents(agent)
    result = engine.run_sync(agent, "Charge 5 for order 7, then check it.", key="order-7")
    print(result.text, "-", calls.read_text().strip())
