"""Everything that Treadle raises on purpose.

    TreadleError
    ├── UsageError              the caller can mend it: a wrong argument, file or setting
    │   ├── ConfigError         an agent file or config.yaml is wrong
    │   ├── UnknownModel        no provider of that name, or none could be told from the model
    │   ├── MissingKey          a provider needs a key and none was given
    │   ├── UnknownRun          no run of that id
    │   ├── UnknownApproval     no approval of that id
    │   ├── InvalidState        the run, agent or approval is not in a state that allows this
    │   └── SizeLimitExceeded   the message is too long
    ├── VaultError              the vault (in `ports/vault.py`)
    ├── StoreError              the database
    │   ├── StoreOwned          another process owns it
    │   ├── StoreLocked         somebody else holds a lock on it
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


class UnknownRun(UsageError):
    pass


class UnknownApproval(UsageError):
    pass


class InvalidState(UsageError):
    pass


class SizeLimitExceeded(UsageError):
    pass


class StoreError(TreadleError):
    pass


class StoreOwned(StoreError):
    pass


class StoreLocked(StoreError):
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
