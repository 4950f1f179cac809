"""Use another model when the first one does not answer."""

import treadle

agent = treadle.Agent(name="steady", model="openai/gpt-5", fallbacks=["openai/gpt-5-mini"], retry={"attempts": 0})
with treadle.Engine("sqlite:///steady.db") as engine:
    result = engine.run_sync(agent, "Say hello.")
    print(result.text, "by", [step.model for step in engine.do_sync(engine.steps(result.run_id)).steps])
