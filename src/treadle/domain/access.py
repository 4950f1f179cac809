"""Who may ask for what, over HTTP."""

from collections.abc import Collection
from typing import Literal

from msgspec import Struct

from treadle.domain.ids import TokenId
from treadle.domain.quotas import Quotas
from treadle.domain.users import LOCAL_USER, UserId

Scope = Literal["read", "run", "approve", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "run", "approve", "admin")
Visibility = Literal["own", "all"]
"""Which users' sessions, runs and memories exist for a token: those of its own user, or of all users."""


def default_visibility(scopes: Collection[Scope]) -> Visibility:
    """What a new token sees unless its creator says otherwise: one that may only run is for one user."""
    return "own" if set(scopes) == {"run"} else "all"


class Principal(Struct, frozen=True):
    """Whoever asks: what they may do, and with which agents."""

    token_id: TokenId | None
    """None: a process of the same user, on this machine."""
    name: str
    scopes: frozenset[Scope]
    agents: tuple[str, ...] | None = None
    """The names of the agents that exist for it; None: all."""
    quotas: Quotas | None = None
    """What its runs may use together."""
    user: UserId = LOCAL_USER
    """Who owns what it begins."""
    visibility: Visibility = "all"

    @property
    def only_owner(self) -> UserId | None:
        """The one user whose sessions, runs and memories exist for it; None: those of all users do."""
        return self.user if self.visibility == "own" else None

    def sees_owner(self, owner: UserId) -> bool:
        """Whether what belongs to this user exists for it."""
        return self.visibility == "all" or owner == self.user

    def may(self, scope: Scope) -> bool:
        """An administrator may do everything."""
        return scope in self.scopes or "admin" in self.scopes

    @property
    def sees_all(self) -> bool:
        """Whether nothing is hidden from it."""
        return self.agents is None and self.visibility == "all"

    def sees(self, agent: str) -> bool:
        return self.agents is None or agent in self.agents


OWNER = Principal(None, "the owner of the home", frozenset(SCOPES))
