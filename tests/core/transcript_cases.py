"""Recorded changes of transcripts, with the items that they lead to. The dashboard applies them in its own tests.

`python -m tests.core.transcript_cases` records them."""

from pathlib import Path
from random import Random

import msgspec

from tests.core.run_scenario import RunScenario, use
from tests.core.test_fold import make_event
from tests.core.test_run_transcript import add_live_events
from treadle.core.transcript.fold import RunTranscript
from treadle.domain import events as e
from treadle.domain.runs import Metrics

RECORD = Path(__file__).parents[2] / "web" / "src" / "lib" / "transcript_cases.json"
TEXTS = ("Plain words.", "Faces 🙂🙃 and flags 🇫🇷 count as characters.", "Straße, 日本語, e\u0301.")


def make_case(seed: int) -> dict[str, object]:
    """Return the changes of a run from some place on, and its items and totals at the end."""
    chance = Random(seed)
    scenario = RunScenario()
    for step in range(4):
        scenario.asks()
        scenario.replies(use("bash", n=step), text=TEXTS[(seed + step) % len(TEXTS)])
        scenario.works()
    scenario.asks()
    scenario.replies(text=TEXTS[seed % len(TEXTS)])
    scenario.happens(e.RunEnd("completed", "completed", Metrics()))
    events = add_live_events([make_event(data, at) for at, data in enumerate(scenario.events, start=1)], chance)
    joined = chance.randrange(len(events) // 2)
    transcript = RunTranscript(events[0].run_id)
    for event in events[:joined]:
        transcript.apply(event)
    frames = [list(transcript.list_changes(0))]
    frames += [changes for event in events[joined:] if (changes := list(transcript.apply(event)))]
    return {"frames": frames, "items": transcript.items, "totals": transcript.totals}


def make_record() -> bytes:
    """Return all cases as JSON."""
    cases = [msgspec.json.encode(make_case(seed)) for seed in range(4)]
    return b"[\n" + b",\n".join(cases) + b"\n]\n"


if __name__ == "__main__":
    RECORD.write_bytes(make_record())
