"""Event data of an older version is upcast when it is decoded, proven with made-up later versions. Data of a later
version is decoded where that is possible."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.domain.test_envelope import ORIGIN
from tests.testing.harnesses import opened
from treadle.core.fold import fold_all
from treadle.core.state import new_state
from treadle.domain import envelope
from treadle.domain import events as e
from treadle.domain.envelope import Event, decode_data, from_json, make_draft, to_json
from treadle.domain.events import EventData, UnknownEvent, upcasts
from treadle.domain.events.definitions import NAMES
from treadle.domain.events.upcasts import VERSION
from treadle.testing.conformance.store import Recorder, StoreProcess
from treadle.testing.time import CountingIds, FakeClock


class _BudgetHint2(EventData, frozen=True):
    """`budget_hint` of version 2: its field `note` is called `text`."""

    percent: int
    text: str


class _BudgetHint3(EventData, frozen=True):
    """`budget_hint` of version 3: the share of a limit is a fraction."""

    share: float
    text: str


def _rename_note(data: dict[str, Any]) -> dict[str, Any]:
    data["text"] = data.pop("note")
    return data


def _use_share(data: dict[str, Any]) -> dict[str, Any]:
    data["share"] = data.pop("percent") / 100
    return data


HINT = make_draft("evt_1", 1.0, e.BudgetHint(70, "three steps are left"))


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the code that of version 3: version 2 renamed a field, version 3 changed the type of another."""
    decoders: Any = envelope._decoders  # pyright: ignore[reportPrivateUsage] -- the made-up vocabulary
    monkeypatch.setitem(decoders, "budget_hint", msgspec.json.Decoder(_BudgetHint3))
    monkeypatch.setitem(NAMES, _BudgetHint3, "budget_hint")
    monkeypatch.setattr(upcasts, "VERSION", VERSION + 2)
    changes = {VERSION: {"budget_hint": _rename_note}, VERSION + 1: {"budget_hint": _use_share}}
    monkeypatch.setattr(upcasts, "UPCASTS", changes)


@pytest.mark.usefixtures("later")
def test_a_renamed_field_of_an_older_version_is_found_under_its_new_name() -> None:
    expected = _BudgetHint3(0.7, "three steps are left")
    assert decode_data("budget_hint", HINT.raw, VERSION) == expected
    second = msgspec.json.encode(_BudgetHint2(70, "three steps are left"))
    assert decode_data("budget_hint", second, VERSION + 1) == expected
    assert decode_data("budget_hint", msgspec.json.encode(expected), VERSION + 2) == expected


@pytest.mark.usefixtures("later")
def test_events_that_did_not_change_are_decoded_as_they_are() -> None:
    draft = make_draft("evt_1", 1.0, e.RunRecovered(2, "died"))
    assert decode_data(draft.type, draft.raw, VERSION) == draft.data


@pytest.mark.usefixtures("later")
def test_stored_bytes_and_versions_do_not_change() -> None:
    data = decode_data(HINT.type, HINT.raw, VERSION)
    stored = Event(
        event_id=HINT.event_id,
        timestamp=1.0,
        origin=ORIGIN,
        sequence=1,
        type=HINT.type,
        data=data,
        raw=HINT.raw,
        version=VERSION,
    )
    again = from_json(to_json(stored))
    assert (again.version, again.raw, again.data) == (VERSION, HINT.raw, data)
    assert to_json(again) == to_json(stored)


def test_data_of_a_later_version_is_decoded_or_unknown() -> None:
    more = msgspec.json.encode({"percent": 70, "note": "so", "colour": "blue"})
    assert decode_data("budget_hint", more, VERSION + 1) == e.BudgetHint(70, "so")
    renamed = msgspec.json.encode(_BudgetHint2(70, "so"))
    assert decode_data("budget_hint", renamed, VERSION + 1) == UnknownEvent()
    with pytest.raises(msgspec.ValidationError):
        decode_data("budget_hint", renamed, VERSION)


async def test_a_stored_journal_is_read_by_a_later_version(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    async def read() -> list[Event]:
        recorder = Recorder()
        async with opened(str(tmp_path / "treadle.db"), recorder, clock := FakeClock()) as journal:
            process = StoreProcess(journal, recorder, clock, CountingIds(), "worker")
            if not await journal.find():
                claim = await process.claimed("ses_1")
                await process.advance(claim, 2, [e.BudgetHint(70, "three steps are left")])
            [record] = await journal.find()
            return list(await journal.read(record.origin.run_id))

    before = await read()
    request.getfixturevalue("later")
    after = await read()
    assert [(event.raw, event.version) for event in after] == [(event.raw, VERSION) for event in before]
    assert after[-1].data == _BudgetHint3(0.7, "three steps are left")
    assert fold_all(new_state(ORIGIN), after).sequence == len(before)
