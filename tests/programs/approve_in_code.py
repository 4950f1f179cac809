"""Decide in code which calls may run."""

import treadle


@treadle.tool(needs_approval=True)
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


def decide(approval: treadle.ApprovalView) -> bool:
    print("asked:", approval.tool, approval.arguments)
    return approval.named_arguments["path"].startswith("/tmp/")


agent = treadle.Agent(name="cleaner", model="openai/gpt-5", tools=[delete_file])
with treadle.Engine("sqlite:///cleaner.db") as engine:
    print(engine.run_sync(agent, "Delete /tmp/a and /etc/passwd.", on_approval=decide).text)
