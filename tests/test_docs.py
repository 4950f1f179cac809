"""What is generated is current."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def test_the_reference_of_events_is_what_the_vocabulary_says() -> None:
    generated = runpy.run_path(str(DOCS / "generate.py"))["page"]()
    assert (DOCS / "reference" / "events.md").read_text() == generated, "run: python docs/generate.py"
