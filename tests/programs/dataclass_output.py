"""An answer as a dataclass."""

from dataclasses import dataclass, field

import treadle


@dataclass
class Invoice:
    number: str
    total: float
    items: list[str] = field(default_factory=list[str])


agent = treadle.Agent(model="openai/gpt-5", output=Invoice)
result = agent.run_sync("Invoice A-7 over 12.50 for two reels of thread.")
if result.output is not None:
    print(result.output.number, result.output.total + 1, result.output.items)
