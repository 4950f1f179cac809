"""Find out why a run failed."""

import treadle

agent = treadle.Agent(name="broken", model="openai/no-such-model")
result = agent.run_sync("Hello.")
if result.status != "completed":
    print(result.status, result.reason)
try:
    result.raise_for_status()
except treadle.TreadleError as error:
    print("error:", error)
