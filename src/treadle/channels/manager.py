"""The channels of a home: who may write, their state, and their work while a server runs."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from msgspec.structs import replace

from treadle.channels.access import make_code
from treadle.channels.runner import ChannelRunner
from treadle.domain.channels import CODE_SECONDS, ChannelConfig, PairingCode, Person, choose_user
from treadle.domain.errors import InvalidState, UnknownChannel, UsageError
from treadle.domain.users import check_user
from treadle.operations.channel_manager import (
    ApprovedPairing,
    ChannelPersonView,
    ChannelView,
    NewPairing,
    PairingView,
    PendingPersonView,
    RecordedStateView,
)
from treadle.operations.schemas import make_view, maybe, moment
from treadle.ports.channel import Channel, ChannelError, Outgoing, find_limitation
from treadle.ports.channel_store import ChannelState, ChannelStore
from treadle.ports.clock import Clock

logger = logging.getLogger(__name__)

TEST_SECONDS = 30.0
Alone = Callable[[str, Callable[[], Awaitable[None]]], Awaitable[None]]


class HomeChannelManager:
    """Implements `operations.channel_manager.ChannelManager`."""

    def __init__(
        self,
        configs: Mapping[str, ChannelConfig],
        store: ChannelStore,
        clock: Clock,
        make: Callable[[str, ChannelConfig], Channel],
        runners: Mapping[str, ChannelRunner],
        alone: Alone,
    ) -> None:
        self._configs = configs
        self._store = store
        self._clock = clock
        self._make = make
        self._runners = runners
        self._alone = alone

    @property
    def store(self) -> ChannelStore:
        """Where people and messages are stored."""
        return self._store

    # ── State ──

    async def list(self) -> Sequence[ChannelView]:
        codes = await self._store.codes(self._clock.now())
        states = {state.channel: state for state in await self._store.states()}
        return [await self._view(name, config, codes, states) for name, config in self._configs.items()]

    async def _view(
        self,
        name: str,
        config: ChannelConfig,
        codes: Sequence[PairingCode],
        states: Mapping[str, ChannelState],
    ) -> ChannelView:
        runner = self._runners.get(name)
        recorded = None if runner is not None and runner.is_holder else states.get(name)
        counts = await self._store.counts(name)
        people = tuple(make_view(ChannelPersonView, person) for person in await self._store.people(name))
        pending = tuple(
            PendingPersonView(code.sender, code.name, moment(code.expires_at))
            for code in codes
            if code.channel == name and code.sender
        )
        return ChannelView(
            name=name,
            platform=config.platform or name,
            agent=config.agent,
            mode=config.mode,
            status="stopped" if runner is None else runner.status,
            account="" if runner is None else runner.account,
            reason="" if runner is None else runner.reason,
            retry_at=None if runner is None else maybe(runner.retry_at),
            unread=counts.get("new", 0),
            running=counts.get("running", 0),
            unsent=counts.get("ready", 0),
            failed=counts.get("failed", 0),
            people=people,
            pending=pending,
            since=None if runner is None or not runner.is_holder else moment(runner.since),
            recorded=None if recorded is None else _to_recorded(recorded),
        )

    async def test(self, channel: str) -> str:
        config = self._config(channel)
        try:
            opened = self._make(channel, config)
            try:
                async with asyncio.timeout(TEST_SECONDS):
                    account = await opened.check()
                limitation = find_limitation(opened)
                return f"{account}. {limitation}" if limitation else account
            finally:
                with suppress(Exception):
                    await opened.close()
        except (ChannelError, ValueError, OSError, TimeoutError) as error:
            reason = str(error) or f"no answer within {TEST_SECONDS:.0f} s"
            raise InvalidState(f"The channel `{channel}` cannot be used: {reason}") from None
        except Exception as error:  # of a library that an adapter uses
            logger.exception("channel %s: the test failed", channel)
            reason = f"{type(error).__name__}: {error}"
            raise InvalidState(f"The channel `{channel}` cannot be used: {reason}") from None

    # ── People ──

    async def pair(self, request: NewPairing) -> PairingView:
        self._config(request.channel)
        _check(request.user)
        expires_at = self._clock.now() + CODE_SECONDS
        code = PairingCode(
            code=make_code(),
            channel=request.channel,
            sender="",
            name="",
            conversation="",
            expires_at=expires_at,
            user=request.user,
            grants=tuple(dict.fromkeys(request.grants)),
        )
        await self._store.add_code(code)
        return PairingView(request.channel, code.code, moment(expires_at))

    async def approve(self, request: ApprovedPairing) -> ChannelPersonView:
        _check(request.user)
        wanted, now = request.code.strip().upper(), self._clock.now()
        code = next((each for each in await self._store.codes(now) if each.code == wanted and each.sender), None)
        if code is None:
            return await self._change_grants(request)
        grants = tuple(dict.fromkeys(request.grants))
        user = choose_user(code.channel, code.sender, request.user, grants)
        person = Person(
            channel=code.channel, sender=code.sender, name=code.name, user=user, grants=grants, added_at=now
        )
        await self._store.save_person(person)
        await self._store.remove_code(code.code)
        welcome = Outgoing(f"welcome/{code.code}", code.conversation, "You are paired. Write what you need.")
        await self._store.finish(code.channel, [welcome], now)
        if (runner := self._runners.get(code.channel)) is not None:
            runner.wake()
        return make_view(ChannelPersonView, person)

    async def _change_grants(self, request: ApprovedPairing) -> ChannelPersonView:
        """Set the grants of a person who is known: `CHANNEL:SENDER` instead of a code."""
        channel, _, sender = request.code.partition(":")
        known = await self._store.person(channel, sender) if sender else None
        if known is None and sender:
            raise self._explain_unknown(channel, sender)
        if known is None:
            raise UnknownChannel(
                f"There is no pairing code {request.code[:100]}, or it has expired. Codes are valid for an hour; "
                "the person gets a new one by writing again. Grants of a person are changed with CHANNEL:SENDER."
            )
        grants = tuple(dict.fromkeys(request.grants))
        user = choose_user(channel, sender, request.user or known.user, grants)
        changed = replace(known, grants=grants, user=user)
        await self._store.save_person(changed)
        return make_view(ChannelPersonView, changed)

    async def revoke(self, channel: str, sender: str) -> None:
        removed = await self._store.remove_person(channel, sender)
        for code in await self._store.codes(self._clock.now()):
            if code.channel == channel and code.sender == sender:
                removed = await self._store.remove_code(code.code) or removed
        if not removed:
            raise self._explain_unknown(channel, sender)

    def _explain_unknown(self, channel: str, sender: str) -> UnknownChannel:
        try:
            self._config(channel)
        except UnknownChannel as error:
            return error
        return UnknownChannel(
            f"{sender[:100]} is not a person of the channel `{channel}`. `treadle channels list` shows the people; "
            "a person who writes gets a code."
        )

    def _config(self, channel: str) -> ChannelConfig:
        if channel not in self._configs:
            known = ", ".join(self._configs) or "none"
            raise UnknownChannel(f"There is no channel `{channel[:100]}` in config.yaml; known: {known}.")
        return self._configs[channel]

    async def deliver(self, channel: str, headers: Mapping[str, str], body: bytes) -> bool:
        runner = self._runners.get(channel)
        return runner is not None and await runner.deliver(headers, body)

    # ── Work ──

    @asynccontextmanager
    async def run_in_background(self) -> AsyncGenerator[None, None]:
        tasks = [
            asyncio.create_task(self._work_while_holding(runner), name=f"treadle-channel-{runner.name}")
            for runner in self._runners.values()
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            for runner in self._runners.values():
                await runner.close()

    async def _work_while_holding(self, runner: ChannelRunner) -> None:
        """Work while this process holds the channel's lease. Otherwise another process does."""
        runner.status, runner.reason = "waiting", "another process holds the connection"
        await self._alone(f"channel/{runner.name}", runner.work)


def _check(user: str) -> None:
    if user:
        try:
            check_user(user)
        except ValueError as error:
            raise UsageError(f"The user is invalid: {error}.") from None


def _to_recorded(state: ChannelState) -> RecordedStateView:
    return RecordedStateView(
        status=state.status,
        account=state.account,
        reason=state.reason,
        since=moment(state.since),
        recorded_at=moment(state.recorded_at),
        is_held=state.is_held,
    )
