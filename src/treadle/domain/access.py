"""Access rights of API clients."""

from collections.abc import Collection
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from treadle.domain.errors import UsageError
from treadle.domain.ids import TokenId
from treadle.domain.quotas import Quotas
from treadle.domain.users import LOCAL_USER, UserId, is_client_user, make_client_user

Scope = Literal["read", "run", "approve", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "run", "approve", "admin")
MAX_TOKEN_NAME_CHARACTERS = 100
PROGRAM_USER_PREFIX = "user_"
Visibility = Literal["own", "all"]
"""Which users' sessions, runs and memories a token can see: those of its own user, or of all users."""


def default_visibility(scopes: Collection[Scope]) -> Visibility:
    """Return the default visibility of a new token: a token that may only run is for one user."""
    return "own" if set(scopes) == {"run"} else "all"


class Principal(Struct, frozen=True):
    """An authenticated client: what it may do, and with which agents."""

    token_id: TokenId | None
    """None for a process of the same user on this machine."""
    name: str
    scopes: frozenset[Scope]
    agents: tuple[str, ...] | None = None
    """The names of the agents that it can see; None for all."""
    quotas: Quotas | None = None
    """What its runs may use together."""
    user: UserId = LOCAL_USER
    """The owner of everything that it creates."""
    visibility: Visibility = "all"
    multi_user: bool = False
    """It serves several people, and acts for the one that a request names."""
    served: str | None = None
    """The name of the user whom it serves now, as the request gave it."""

    def for_user(self, name: str | None) -> "Principal":
        """Return the client on behalf of a user whom it serves; itself without a name. A client that serves several
        people sees nothing of the others then."""
        if name is None or name == self.served:
            return self
        if self.served is not None:
            raise UsageError("The request names two users, in its header and in its body. Name one.")
        visibility: Visibility = "own" if self.multi_user else self.visibility
        return replace(self, user=make_client_user(self.user, name), visibility=visibility, served=name)

    @property
    def has_access_token(self) -> bool:
        """Whether an access token stands for it."""
        return self.token_id is not None and not self.token_id.startswith(PROGRAM_USER_PREFIX)

    @property
    def is_anonymous(self) -> bool:
        """Whether it serves several people and no one of them is named."""
        return self.multi_user and self.served is None

    def owns(self, owner: UserId) -> bool:
        """Return whether something belongs to its user, or to a user whom it serves."""
        return owner == self.user or is_client_user(owner, self.user)

    @property
    def only_owner(self) -> UserId | None:
        """The only user whose sessions, runs and memories it can see; None for all users."""
        return self.user if self.visibility == "own" else None

    def sees_owner(self, owner: UserId) -> bool:
        """Return whether it can see what belongs to this user."""
        return self.visibility == "all" or self.owns(owner)

    def may(self, *scopes: Scope) -> bool:
        """Return whether it has one of these scopes. An administrator has every scope."""
        return "admin" in self.scopes or any(scope in self.scopes for scope in scopes)

    @property
    def sees_all(self) -> bool:
        """Whether it can see everything."""
        return self.agents is None and self.visibility == "all"

    def sees(self, agent: str) -> bool:
        return self.agents is None or agent in self.agents


def make_program_user(name: str, scopes: Collection[Scope], agents: Collection[str]) -> Principal:
    """Return a client whom a program that embeds the engine has identified: it sees only what belongs to it.

    It counts as a token of its own, whose id no access token has: what it starts is not the owner's."""
    return Principal(
        token_id=TokenId(f"{PROGRAM_USER_PREFIX}{name}"),
        name=name,
        scopes=frozenset(scopes),
        agents=tuple(agents),
        user=name,
        visibility="own",
    )


OWNER = Principal(None, "the owner of the home", frozenset(SCOPES))
