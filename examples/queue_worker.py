"""A worker that takes jobs from a table. It can be killed at any time: no job is lost, and none is done twice.

python queue_worker.py add "Describe a loom."
python queue_worker.py work

Each job is a run whose key is the number of the job. A worker that takes a job again gets the run that exists. On
PostgreSQL (WORKER_DATABASE), several workers share the jobs."""

import asyncio
import os
import sqlite3
import sys
from contextlib import closing

import treadle
from treadle.testing import FunctionModel, ask, call, say

DATABASE = os.environ.get("WORKER_DATABASE", "sqlite:///worker.db")
JOBS = """CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY, message TEXT NOT NULL, run TEXT, answer TEXT)"""


@treadle.tool(effect="external")
def publish(text: str) -> str:
    "Publish a text."
    with open("published.txt", "a") as file:  # stands for an effect that must not happen twice
        file.write(f"{text}\n")
    print("published", flush=True)
    return "published"


AGENT = treadle.Agent(name="writer", model="scripted/any", tools=[publish])


def open_jobs() -> sqlite3.Connection:
    jobs = sqlite3.connect("jobs.db", isolation_level=None)
    jobs.execute(JOBS)
    return jobs


async def work(engine: treadle.Engine, jobs: sqlite3.Connection) -> None:
    """Do all jobs that have no answer yet."""
    for job, message in jobs.execute("SELECT id, message FROM jobs WHERE answer IS NULL ORDER BY id").fetchall():
        run_id = await engine.submit(AGENT, message, key=f"job-{job}")
        jobs.execute("UPDATE jobs SET run = ? WHERE id = ?", (run_id, job))
        result = await engine.wait(run_id)
        jobs.execute("UPDATE jobs SET answer = ? WHERE id = ?", (result.text, job))
        print(f"job {job}: {result.text}", flush=True)


async def main() -> None:
    with closing(open_jobs()) as jobs:
        if sys.argv[1] == "add":
            jobs.execute("INSERT INTO jobs (message) VALUES (?)", (sys.argv[2],))
            return
        engine = treadle.Engine(DATABASE)
        engine.add_model(
            "scripted",
            FunctionModel(
                lambda request: (
                    say("Done.")
                    if request.conversation.messages[-1].role == "tool"
                    else ask(call("publish", text="A loom holds threads."))
                )
            ),
        )
        engine.add_tools(publish)  # for jobs that an earlier process has begun
        async with engine:
            await work(engine, jobs)


if __name__ == "__main__":
    asyncio.run(main())
