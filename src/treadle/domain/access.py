"""Who may ask for what, over HTTP."""

from typing import Literal

from msgspec import Struct

from treadle.domain.identity import TokenId
from treadle.domain.quotas import Quotas

Scope = Literal["read", "run", "approve", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "run", "approve", "admin")


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

    def may(self, scope: Scope) -> bool:
        """An administrator may do everything."""
        return scope in self.scopes or "admin" in self.scopes

    def sees(self, agent: str) -> bool:
        return self.agents is None or agent in self.agents


OWNER = Principal(None, "the owner of the home", frozenset(SCOPES))
