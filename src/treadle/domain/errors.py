"""Everything that Treadle raises on purpose.

    TreadleError
    ├── UsageError              the caller can mend it: a wrong argument, file or setting
    │   ├── ConfigError         an agent file or config.yaml is wrong
    │   ├── UnknownModel        no provider of that name, or none could be told from the model
    │   ├── MissingKey          a provider needs a key and none was given
    │   ├── Unknown             nothing of that name or id is there
    │   │   ├── UnknownRun
    │   │   │   └── RunDeleted      it was there, and somebody has deleted it
    │   │   ├── UnknownApproval
    │   │   ├── UnknownSession
    │   │   │   └── SessionDeleted
    │   │   ├── UnknownAgent
    │   │   ├── UnknownMemory
    │   │   ├── UnknownToken
    │   │   ├── UnknownSchedule
    │   │   ├── UnknownHook
    │   │   └── UnknownWebhook
    │   ├── QuotaExceeded       the agent or the token has used what it may, for now
    │   ├── InsufficientCredits the agent or the token has no credits left
    │   ├── InvalidState        the run, agent or approval is not in a state that allows this
    │   └── SizeLimitExceeded   the message is too long
    ├── VaultError              the vault (in `ports/vault.py`)
    ├── StoreError              the database
    │   ├── StoreOwned          another process owns it
    │   ├── StoreLocked         somebody else holds a lock on it
    │   ├── StoreAway           its server cannot be reached, for now
    │   ├── StoreDamaged        its content is not a sound database
    │   ├── StoreNewer          it was written by a later version
    │   ├── StoreFull           no room on the disk; new work is refused, reads go on
    │   └── StoreLost           a write could not be made durable; the process must start again
    ├── Fenced                  another worker owns the run now; what this one wrote was refused
    └── NotClaimable            the run cannot be owned now (owned, ended, or behind another of its session)

Each message says what happened, to what, and what to do next.
"""


class TreadleError(Exception):
    """Something that Treadle can name."""


class UsageError(TreadleError):
    pass


class ConfigError(UsageError):
    pass


class UnknownModel(UsageError):
    pass


class MissingKey(UsageError):
    pass


class Unknown(UsageError):
    pass


class UnknownRun(Unknown):
    pass


class RunDeleted(UnknownRun):
    pass


class UnknownApproval(Unknown):
    pass


class UnknownSession(Unknown):
    pass


class SessionDeleted(UnknownSession):
    pass


class SessionTaken(UnknownSession):
    """The session belongs to another user than the run that was to begin in it."""


class UnknownAgent(Unknown):
    pass


class UnknownMemory(Unknown):
    pass


class UnknownToken(Unknown):
    pass


class UnknownSchedule(Unknown):
    pass


class UnknownHook(Unknown):
    pass


class UnknownWebhook(Unknown):
    pass


class InvalidState(UsageError):
    pass


class SizeLimitExceeded(UsageError):
    pass


class QuotaExceeded(UsageError):
    def __init__(self, message: str, resets_at: float | None = None) -> None:
        super().__init__(message)
        self.resets_at = resets_at
        """When there is something left again, in seconds since 1970; None: never, by itself."""


class InsufficientCredits(UsageError):
    def __init__(self, message: str, resets_at: float | None = None) -> None:
        super().__init__(message)
        self.resets_at = resets_at
        """None: credits do not come back by themselves."""


class StoreError(TreadleError):
    pass


class StoreOwned(StoreError):
    def __init__(self, message: str, socket: str | None = None, owner: str = "another process") -> None:
        super().__init__(message)
        self.socket = socket
        """Where the owner can be attached to, if anywhere."""
        self.owner = owner


class StoreLocked(StoreError):
    pass


class StoreAway(StoreError):
    pass


class StoreDamaged(StoreError):
    pass


class StoreNewer(StoreError):
    pass


class StoreFull(StoreError):
    pass


class StoreLost(StoreError):
    pass


class Fenced(TreadleError):
    pass


class NotClaimable(TreadleError):
    pass
