"""Runs in a process where every message of the engine is reworded: `python -m tests.wording.child FOLDER`.

It records the stories again and replays them, replays the records in the folder that were made with the ordinary
wording, and renders the lines of every event. It writes what it found to `found.json` in the folder."""

import logging
import sys
from pathlib import Path
from typing import Any

import msgspec

if __name__ == "__main__":
    from tests.wording.rewording import install

    install()

from tests.wording.records import load
from tests.wording.stories import STORIES, TOOLS
from treadle.api.engine import create_engine
from treadle.config.home import Home
from treadle.core.tools.plan import AFTER_A_DENIAL
from treadle.domain.transcript import Item, ItemAdded, ItemChanged
from treadle.operations.transcripts import RunTranscript
from treadle.ports.tool import Toolbox
from treadle.replay.recording import Recorded
from treadle.replay.replay import Replayed, replay
from treadle.surfaces.terminal.item_lines import list_lines

RECORDS = "records.jsonl.gz"
FOUND = "found.json"


class Outcome(msgspec.Struct):
    """The result of replaying one record."""

    story: str
    cannot: str
    divergence: str
    reworded: list[str]
    """The types of the events whose wording differs."""
    lines: list[list[str]]
    """What the command line prints for every event, without answers."""


class Found(msgspec.Struct):
    message: str
    """A message of the engine, to check that it is reworded."""
    own: list[Outcome]
    """The stories, recorded and replayed with the same wording."""
    ordinary: list[Outcome]
    """The given records, replayed with the reworded code."""


def make_toolbox() -> Toolbox:
    engine: Any = create_engine("sqlite:///:memory:", home=Home(Path("/nowhere")))
    engine.add_tools(*TOOLS)
    return engine._config.tools


def tell_all(folder: Path) -> list[tuple[str, Recorded]]:
    """Record every story in a folder of its own."""
    found: list[tuple[str, Recorded]] = []
    for story in STORIES:
        place = folder / story.__name__
        place.mkdir(parents=True)
        found += [(story.__name__, each) for each in story(place)]
    return found


def check(records: list[tuple[str, Recorded]]) -> list[Outcome]:
    toolbox = make_toolbox()
    return [_outcome(story, each, replay(each, toolbox)) for story, each in records]


def _outcome(story: str, record: Recorded, replayed: Replayed) -> Outcome:
    transcript, known = RunTranscript(record.events[0].run_id), dict[str, Item]()
    lines: list[list[str]] = []
    for event in record.events:
        changed = [change.item for change in transcript.apply(event) if isinstance(change, ItemAdded | ItemChanged)]
        lines.append([line for item in changed for line in list_lines(item, known.get(item.key))])
        known |= {item.key: item for item in changed}
    differs = "" if replayed.divergence is None else str(replayed.divergence)
    return Outcome(story, replayed.cannot, differs, [each.type for each in replayed.wording], lines)


def main(folder: Path) -> None:
    logging.disable(logging.CRITICAL)
    own, ordinary = tell_all(folder / "own"), load(folder / RECORDS)
    found = Found(AFTER_A_DENIAL, check(own), check(ordinary))
    (folder / FOUND).write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
