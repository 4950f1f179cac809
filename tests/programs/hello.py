"""Ask one question."""

import treadle

agent = treadle.Agent(model="openai/gpt-5", instructions="Answer in one word.")
result = agent.run_sync("What is the capital of France?")
print(result.output)
