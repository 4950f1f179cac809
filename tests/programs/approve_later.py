"""The first start asks for an approval and ends. The second one approves, and the run goes on."""

import asyncio

import treadle


@treadle.tool(needs_approval=True)
def send_mail(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


async def main() -> None:
    agent = treadle.Agent(name="mailer", model="openai/gpt-5", tools=[send_mail])
    async with treadle.Engine("sqlite:///mail.db") as engine:
        engine.add_agents(agent)
        pending = await engine.list_approvals()
        if not pending:
            result = await engine.run(agent, "Write to Ada.")
            print(result.status, [approval.tool for approval in result.approvals])
            return
        await engine.decide(pending[0].approval_id, "approve")
        result = await engine.wait(pending[0].run_id)
        print(result.status, result.text)


asyncio.run(main())
