"""The official OpenAI client for Node.js against an agent: at least 60 documented behaviours."""

import json
import os
import subprocess
from pathlib import Path

from tests.peers.node import NODE, PEERS, skip_without
from tests.peers.served_agent import serve_agent
from tests.surfaces.http.test_openai_behaviours import LEAST, answer

SCRIPT = Path(__file__).with_name("openai_behaviours.mjs")


@skip_without("openai")
def test_the_documented_behaviours_hold(tmp_path: Path) -> None:
    with serve_agent(tmp_path, answer) as agent:
        done = subprocess.run(
            [str(NODE), "--input-type=module", "--eval", SCRIPT.read_text()],
            cwd=PEERS.parent,
            env={**os.environ, "TREADLE_URL": agent.url, "TREADLE_TOKEN": agent.token},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["failed"] == {}
    assert found["held"] >= LEAST
