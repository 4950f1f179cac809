"""Tells the stories of the surfaces: `python -m tests.wording.surface_child FOLDER [reworded]`. Their facts go to
`facts.json` in the folder."""

import logging
import sys
from pathlib import Path

import msgspec

if __name__ == "__main__" and "reworded" in sys.argv[2:]:
    from tests.wording.rewording import install

    install()

from tests.wording.surface_stories import tell
from treadle.doctor import channels
from treadle.surfaces.tui import texts

FACTS = "facts.json"
MESSAGES = "messages"


def main(folder: Path) -> None:
    logging.disable(logging.CRITICAL)
    messages = [(channels.__name__, channels.LIMITATION_ADVICE), (texts.__name__, texts.INSTALL)]
    (folder / FACTS).write_bytes(msgspec.json.encode({**tell(folder), MESSAGES: messages}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
