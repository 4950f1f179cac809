"""An agent that gives work to another one."""

import treadle

writer = treadle.Agent(name="writer", model="openai/gpt-5", instructions="You write poems.")
boss = treadle.Agent(name="boss", model="openai/gpt-5", tools=[writer])

with treadle.Engine("sqlite:///agents.db") as engine:
    result = engine.run_sync(boss, "Have a poem written.")
    print(result.text)
    for run in engine.do_sync(engine.list_runs()):
        print(run.agent, run.status)
