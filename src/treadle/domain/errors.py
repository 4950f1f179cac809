"""Every exception that Treadle raises on purpose.

    TreadleError
    ├── UsageError              the caller can fix it: a wrong argument, file or setting
    │   ├── ConfigError
    │   ├── UnknownModel
    │   ├── MissingKey
    │   ├── Unknown             the named entity does not exist
    │   │   ├── UnknownRun
    │   │   │   └── RunDeleted
    │   │   ├── UnknownApproval
    │   │   ├── UnknownSession
    │   │   │   ├── SessionDeleted
    │   │   │   └── SessionTaken
    │   │   ├── UnknownAgent
    │   │   ├── UnknownMemory
    │   │   ├── UnknownToken
    │   │   ├── UnknownSchedule
    │   │   ├── UnknownBackup
    │   │   ├── UnknownChannel
    │   │   ├── UnknownHook
    │   │   └── UnknownWebhook
    │   ├── InvalidState
    │   │   ├── RunUnavailable
    │   │   └── SessionContinued
    │   ├── SizeLimitExceeded
    │   ├── QuotaExceeded
    │   └── InsufficientCredits
    ├── VaultError              the vault (in `ports/vault.py`)
    ├── StoreError              the database
    │   ├── StoreOwned
    │   ├── StoreLocked
    │   ├── StoreAway
    │   ├── StoreDamaged
    │   ├── StoreMissing
    │   ├── StoreNewer
    │   ├── StoreOutdated
    │   ├── StoreFull
    │   └── StoreLost
    ├── Fenced
    └── NotClaimable

Each message says what happened, to what, and what to do next. docs/reference/errors.md is generated from the class
docstrings.
"""


class TreadleError(Exception):
    """Base class of every exception that Treadle raises on purpose.

    For example:

        agent = treadle.Agent(name="helper", model="provider/model-id")
        try:
            print(treadle.Engine("sqlite:///helper.db").run_sync(agent, "Hello.").text)
        except treadle.TreadleError as error:
            raise SystemExit(f"{error}")
    """


class RunFailed(TreadleError):
    """A run did not complete. `Result.raise_for_status` raises it.

    For example:

        agent = treadle.Agent(name="helper", model="provider/model-id")
        result = treadle.Engine("sqlite:///helper.db").run_sync(agent, "Hello.")
        try:
            result.raise_for_status()
        except treadle.RunFailed as error:
            print(error)
        print(result.text)
    """


class UsageError(TreadleError):
    """The caller can fix it: a wrong argument, file or setting."""


class ConfigError(UsageError):
    """An agent file or `config.yaml` is invalid."""


class UnknownModel(UsageError):
    """No provider has this name, or the model name does not tell its provider."""


class MissingKey(UsageError):
    """The provider needs an API key and none is set."""


class Unknown(UsageError):
    """The named entity does not exist."""


class UnknownRun(Unknown):
    """The run does not exist."""


class UnknownCall(Unknown):
    """The run has no result of such a tool call."""


class RunDeleted(UnknownRun):
    """The run was deleted."""


class UnknownApproval(Unknown):
    """The approval does not exist."""


class UnknownSession(Unknown):
    """The session does not exist."""


class SessionDeleted(UnknownSession):
    """The session was deleted."""


class SessionTaken(UnknownSession):
    """The session belongs to another user."""


class UnknownAgent(Unknown):
    """The agent does not exist."""


class UnknownMemory(Unknown):
    """The memory does not exist."""


class UnknownToken(Unknown):
    """The access token does not exist."""


class UnknownSchedule(Unknown):
    """The schedule does not exist."""


class UnknownBackup(Unknown):
    """The backup does not exist."""


class UnknownChannel(Unknown):
    """The channel, its pairing code or its person does not exist."""


class UnknownHook(Unknown):
    """The inbound webhook does not exist."""


class UnknownWebhook(Unknown):
    """The webhook does not exist."""


class UnknownMcpServer(Unknown):
    """No MCP server with this name is configured."""


class UnknownSkill(Unknown):
    """There is no skill with this name, or it is not approved."""


class UnknownSecret(Unknown):
    """The vault has no secret with this name."""


class InvalidState(UsageError):
    """The run, agent or approval is not in a state that allows the operation."""


class RunUnavailable(InvalidState):
    """The run needs a tool, an agent or a provider that this engine does not have.

    For example:

        async with treadle.Engine("sqlite:///helper.db") as engine:
            run_id = await engine.submit(treadle.Agent(name="helper", model="provider/model-id"), "Hello.")
            try:
                print((await engine.wait(run_id)).text)
            except treadle.RunUnavailable as error:
                print(error)  # what it needs; the run continues when an engine has it
    """


class SessionContinued(InvalidState):
    """The session has a later run than the one that the message follows."""


class SizeLimitExceeded(UsageError):
    """The message or the request body is too large."""


class QuotaExceeded(UsageError):
    """The agent or the access token has used its quota."""

    def __init__(self, message: str, resets_at: float | None = None) -> None:
        super().__init__(message)
        self.resets_at = resets_at
        """When the quota has room again, in seconds since 1970. None: never."""


class InsufficientCredits(UsageError):
    """The agent or the access token has no credits left."""

    def __init__(self, message: str, resets_at: float | None = None) -> None:
        super().__init__(message)
        self.resets_at = resets_at
        """Always None: credits are not restored with time."""


class StoreError(TreadleError):
    """The database failed."""


class StoreOwned(StoreError):
    """Another process owns the database."""

    def __init__(
        self,
        message: str,
        socket: str | None = None,
        owner: str = "another process",
        since: float = 0.0,
        pid: int = 0,
    ) -> None:
        super().__init__(message)
        self.socket = socket
        """The Unix socket of the owner, if it listens on one."""
        self.owner = owner
        self.pid = pid
        """Process id of the owner; 0: unknown."""
        self.since = since
        """When the owner took the database; 0.0: unknown."""


class StoreLocked(StoreError):
    """Another process holds a lock on the database."""


class StoreAway(StoreError):
    """The database server cannot be reached."""


class StoreDamaged(StoreError):
    """The database file is damaged."""


class StoreMissing(StoreError):
    """The home had a database, which is missing or empty now."""


class StoreNewer(StoreError):
    """A later version of Treadle wrote the database."""


class StoreOutdated(StoreError):
    """The database is from before the first release of Treadle."""


class StoreFull(StoreError):
    """The disk is full. New work is rejected; reads continue."""


class StoreLost(StoreError):
    """A write may not be durable. The process must be restarted."""


class Fenced(TreadleError):
    """Another worker owns the run. The journal rejected the write."""


class NotClaimable(TreadleError):
    """The run cannot be claimed: it is owned, has ended, or waits for an earlier run of its session."""
