"""Call one engine from threads of my own."""

from concurrent.futures import ThreadPoolExecutor

import treadle

agent = treadle.Agent(name="helper", model="openai/gpt-5")
with treadle.Engine("sqlite:///threads.db") as engine:

    def ask(number: int) -> str | None:
        return engine.run_sync(agent, f"Question {number}").output

    with ThreadPoolExecutor(4) as pool:
        print(sorted(answer or "" for answer in pool.map(ask, range(4))))
