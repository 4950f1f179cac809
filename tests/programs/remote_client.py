"""The same calls on a server: `treadle serve` runs the agent."""

import treadle

with treadle.Client() as client:
    result = client.run("helper", "Say hello.")
    print(result.status, result.text)
    for text in client.stream_text("helper", "Say hello again."):
        print(text, end="")
    print()
    print(len(client.list_runs()), "runs")
