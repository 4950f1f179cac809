"""Webhook deliveries: signed, in order and at least once. A slow receiver does not delay others."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from tests.automation.receiver import Behaviour, Received, receiver
from tests.automation.sending import Sending, eventually, sending
from treadle.domain.envelope import from_json, to_json
from treadle.domain.errors import UnknownWebhook, UsageError
from treadle.domain.events import WebhookDelivered, WebhookFailed
from treadle.domain.webhooks import FIRST_DELAY_SECONDS, GIVE_UP_SECONDS, MAX_DELAY_SECONDS, WebhookId, retry_delay
from treadle.operations.automation import DeadLetterView

DAY = 86_400.0


async def perform(folder: Path, scenario: Callable[[Sending], Coroutine[Any, Any, None]]) -> None:
    async with sending(folder) as works:
        await scenario(works)


def first_fails(times: int, how: Behaviour = 500) -> Callable[[Received], Behaviour]:
    """Fail so often, whatever comes, and take everything then."""
    left = [how] * times

    def behave(_: Received) -> Behaviour:
        return left.pop() if left else 204

    return behave


async def test_events_are_delivered_signed_and_in_order(tmp_path: Path) -> None:
    async def scenario(works: Sending) -> None:
        await works.run()  # before anybody wanted it
        async with receiver() as other:
            made = await works.add(other.url)
            results = [await works.run() for _ in range(3)]
            journal = [event for result in results for event in await works.engine.service.page(result.run_id)]
            received = await other.until(len(journal))
            assert [msgspec.json.decode(each.body)["event_id"] for each in received] == [
                e.event_id for e in journal
            ]
            for each, event in zip(received, journal, strict=True):
                assert Webhook(made.secret).verify(each.body, each.headers) == msgspec.json.decode(each.body)
                assert each.body == to_json(event)
                assert each.event_id == event.event_id
                assert each.headers["treadle-sequence"] == str(event.sequence)
                assert each.headers["content-type"] == "application/json"
            with pytest.raises(Exception, match="signature"):
                Webhook(made.secret).verify(received[0].body + b" ", received[0].headers)
            assert works.live[0] == WebhookDelivered(made.webhook_id, journal[0].event_id, 1)

    await perform(tmp_path, scenario)


async def test_the_events_of_a_run_have_its_labels(tmp_path: Path) -> None:
    """They follow the fields of the event. A run without labels has none."""

    async def scenario(works: Sending) -> None:
        async with receiver() as other:
            await works.add(other.url, "run_end")
            await works.run(tags=["vip"], metadata={"ticket": "42"})
            await works.run()
            first, second = [msgspec.json.decode(each.body) for each in await other.until(2)]
            assert (first["tags"], first["metadata"]) == (["vip"], {"ticket": "42"})
            assert list(first)[:-2] == list(second)
            assert from_json(msgspec.json.encode(first)).type == "run_end"

    await perform(tmp_path, scenario)


async def test_only_the_selected_events_and_agents_are_sent(tmp_path: Path) -> None:
    async def scenario(works: Sending) -> None:
        async with receiver() as other:
            await works.add(other.url, "run_end", "step_*", agents=("hero",))
            await works.run("stranger")
            await works.run("hero")
            await works.run("hero")
            received = await other.until(6)
            assert [each.type for each in received] == ["step_start", "step_end", "run_end"] * 2

    await perform(tmp_path, scenario)


async def test_a_failure_is_tried_again_later_and_nothing_overtakes_it(tmp_path: Path) -> None:
    async def scenario(works: Sending) -> None:
        async with receiver(first_fails(2)) as other:
            made = await works.add(other.url, "run_end")
            results = [await works.run() for _ in range(2)]
            await other.until(1)
            waiting = await works.until(lambda webhook: webhook.attempts == 1)
            assert waiting.problem == "The receiver answered 500."
            assert waiting.retry_at == pytest.approx(works.clock.now() + FIRST_DELAY_SECONDS)
            await works.looked_again()
            assert len(other.received) == 1, "it is not time yet"
            works.clock.pass_time(FIRST_DELAY_SECONDS)
            waiting = await works.until(lambda webhook: webhook.attempts == 2)
            assert waiting.retry_at == pytest.approx(works.clock.now() + 20)
            works.clock.pass_time(20)
            received = await other.until(4)
            ids = [each.event_id for each in received]
            assert ids[0] == ids[1] == ids[2] != ids[3]
            ends = [(await works.engine.service.page(result.run_id))[-1].event_id for result in results]
            assert ids[2:] == ends
            done = await works.until(lambda webhook: webhook.attempts == 0 and webhook.delivered_at is not None)
            assert done.problem == ""
            failed = [data for data in works.live if isinstance(data, WebhookFailed)]
            assert [(data.webhook_id, data.attempt) for data in failed] == [
                (made.webhook_id, 1),
                (made.webhook_id, 2),
            ]

    await perform(tmp_path, scenario)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("hang", "no answer within"),
        ("broken", "could not be reached"),
        ("elsewhere", "answered 302"),
        (404, "answered 404"),
    ],
)
async def test_every_kind_of_failure_is_recorded_and_retried(tmp_path: Path, how: Behaviour, told: str) -> None:
    async def scenario(works: Sending) -> None:
        await works.kill()
        works.timeout_seconds = 0.2
        works.start()
        async with receiver(first_fails(1, how)) as other:
            await works.add(other.url, "run_end")
            await works.run()
            failed = await works.until(lambda webhook: webhook.attempts == 1)
            assert told in failed.problem
            works.clock.pass_time(DAY / 24)
            await works.until(lambda webhook: webhook.delivered_at is not None)
            assert other.elsewhere == 0

    await perform(tmp_path, scenario)


async def test_an_unreachable_receiver_is_a_failure_like_any_other(tmp_path: Path) -> None:
    async def scenario(works: Sending) -> None:
        await works.add("http://127.0.0.1:9/", "run_end")
        await works.run()
        failed = await works.until(lambda webhook: webhook.attempts == 1)
        assert "could not be reached" in failed.problem

    await perform(tmp_path, scenario)


async def test_an_endless_response_is_not_read(tmp_path: Path) -> None:
    async def scenario(works: Sending) -> None:
        async with receiver(lambda _: "endless") as other:
            await works.add(other.url, "run_end")
            await works.run()
            await works.until(lambda webhook: webhook.delivered_at is not None)

    await perform(tmp_path, scenario)


async def test_a_hanging_receiver_delays_neither_others_nor_the_engine(tmp_path: Path) -> None:
    async def scenario(works: Sending) -> None:
        async with receiver(lambda _: "hang") as slow, receiver() as quick:
            await works.add(slow.url, "run_end")
            await works.add(quick.url, "run_end")
            for _ in range(3):
                assert (await works.run()).outcome == "completed"
            await quick.until(3)
            assert len(slow.received) == 1

    await perform(tmp_path, scenario)


async def test_a_receiver_that_is_gone_is_not_contacted_until_a_retry_is_requested(tmp_path: Path) -> None:
    async def scenario(works: Sending) -> None:
        async with receiver(first_fails(1, 410)) as other:
            made = await works.add(other.url, "run_end")
            await works.run()
            await works.run()
            await works.until(lambda webhook: webhook.disabled)
            works.clock.pass_time(DAY)
            await works.looked_again()
            assert len(other.received) == 1
            assert await works.book.retry(made.webhook_id) == 0
            received = await other.until(3)
            assert received[0].event_id == received[1].event_id != received[2].event_id
            assert not (await works.webhook()).disabled

    await perform(tmp_path, scenario)


async def test_an_event_becomes_a_dead_letter_after_the_last_attempt_and_can_be_sent_again(tmp_path: Path) -> None:
    async def scenario(works: Sending) -> None:
        async with receiver(first_fails(3)) as other:
            made = await works.add(other.url, "run_end", most_attempts=2)
            results = [await works.run() for _ in range(2)]
            await works.until(lambda webhook: webhook.attempts == 1)
            works.clock.pass_time(10)
            waiting = await works.until(lambda webhook: webhook.position > 0 and webhook.attempts == 1)
            await other.until(3)
            [letter] = await works.book.dead(made.webhook_id)
            assert letter.run_id == results[0].run_id
            assert letter.attempts == 2
            assert letter.reason == "The receiver answered 500."
            assert waiting.problem == letter.reason
            works.clock.pass_time(10)
            received = await other.until(4)
            assert received[3].event_id == received[2].event_id != received[0].event_id
            assert await works.book.retry(made.webhook_id, letter.event_id) == 1
            received = await other.until(5)
            assert received[4].event_id == letter.event_id

            async def none_left() -> bool | None:
                return None if await works.book.dead(made.webhook_id) else True

            await eventually(none_left)

    await perform(tmp_path, scenario)


async def test_a_dead_letter_whose_retry_fails_stays_a_dead_letter(tmp_path: Path) -> None:
    async def scenario(works: Sending) -> None:
        async with receiver(lambda _: 503) as other:
            made = await works.add(other.url, "run_end", most_attempts=1)
            result = await works.run()
            await works.until(lambda webhook: webhook.position > 0 and webhook.attempts == 0)
            await works.book.retry(made.webhook_id)
            await other.until(2)

            async def settled() -> DeadLetterView | None:
                [letter] = await works.book.dead(made.webhook_id)
                return None if letter.queued else letter

            letter = await eventually(settled)
            assert (letter.attempts, letter.reason) == (2, "The receiver answered 503.")
            await works.engine.context.retention.delete_session(result.session_id, "me")
            assert await works.book.dead(made.webhook_id) == [], "what is deleted is deleted here too"

    await perform(tmp_path, scenario)


async def test_an_event_becomes_a_dead_letter_after_three_days(tmp_path: Path) -> None:
    async def scenario(works: Sending) -> None:
        async with receiver(lambda _: 500) as other:
            made = await works.add(other.url, "run_end")
            await works.run()
            began, attempts = works.clock.now(), 0
            while not await works.book.dead(made.webhook_id):
                attempts += 1
                found = await works.until(lambda one, now=attempts: one.attempts == now or one.position > 0)
                if found.retry_at is not None:
                    works.clock.pass_time(found.retry_at - works.clock.now())
            assert GIVE_UP_SECONDS <= works.clock.now() - began < GIVE_UP_SECONDS + MAX_DELAY_SECONDS
            assert 15 < len(other.received) < 25

    await perform(tmp_path, scenario)


async def test_a_delivery_that_was_not_recorded_before_a_crash_is_repeated_with_the_same_id(tmp_path: Path) -> None:
    async def scenario(works: Sending) -> None:
        async with receiver() as other:
            await works.add(other.url, "run_end")
            works.webhooks.dying = True
            await works.run()
            await other.until(1)
            await works.webhooks.died.wait()
            await works.kill()
            works.webhooks.dying = False
            works.start()
            await works.run()
            received = await other.until(3)
            ids = [each.event_id for each in received]
            assert ids[0] == ids[1] != ids[2]
            assert received[0].body == received[1].body

    await perform(tmp_path, scenario)


async def test_a_restarted_sender_resumes_and_keeps_the_retry_delay(tmp_path: Path) -> None:
    async def scenario(works: Sending) -> None:
        async with receiver(first_fails(1)) as other:
            await works.add(other.url, "run_end")
            await works.run()
            await works.until(lambda webhook: webhook.attempts == 1)
            await works.kill()
            works.start()
            await works.looked_again()
            assert len(other.received) == 1
            works.clock.pass_time(10)
            received = await other.until(2)
            assert received[0].event_id == received[1].event_id

    await perform(tmp_path, scenario)


async def test_events_committed_while_no_sender_ran_are_sent_later(tmp_path: Path) -> None:
    async def scenario(works: Sending) -> None:
        async with receiver() as other:
            await works.add(other.url, "run_end")
            await works.kill()
            results = [await works.run() for _ in range(5)]
            works.start()
            received = await other.until(5)
            assert [msgspec.json.decode(each.body)["run_id"] for each in received] == [r.run_id for r in results]

    await perform(tmp_path, scenario)


async def test_a_removed_webhook_receives_nothing_more(tmp_path: Path) -> None:
    async def scenario(works: Sending) -> None:
        async with receiver() as other:
            made = await works.add(other.url, "run_end")
            await works.run()
            await other.until(1)
            await works.book.remove(made.webhook_id)
            await works.run()
            await works.looked_again()
            assert len(other.received) == 1
            for ask in (works.book.remove, works.book.dead, works.book.retry):
                with pytest.raises(UnknownWebhook, match="treadle webhooks list"):
                    await ask(WebhookId("whk_none"))

    await perform(tmp_path, scenario)


@pytest.mark.parametrize("url", ["ftp://x/", "https://", "http://[::1", "x", "http://a b/", "http://x:99999/"])
async def test_a_webhook_with_an_invalid_url_or_event_type_is_refused(tmp_path: Path, url: str) -> None:
    async def scenario(works: Sending) -> None:
        with pytest.raises(UsageError, match="cannot be sent to"):
            await works.add(url)
        with pytest.raises(UsageError, match="No stored event is called token"):
            await works.add("https://example.com", "token")

    await perform(tmp_path, scenario)


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_delays_grow_up_to_six_hours(attempts: int, chance: float) -> None:
    delay = retry_delay(attempts, chance)
    assert 0.8 * FIRST_DELAY_SECONDS <= delay <= MAX_DELAY_SECONDS
    assert retry_delay(attempts + 1, chance) >= delay
