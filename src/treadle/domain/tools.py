"""What a tool says of itself: its name, its schema and what it does to the world."""

from typing import Any, Literal

from msgspec import Struct

Effect = Literal["none", "read", "write", "external"]
Need = Literal["network", "workspace", "secrets", "results", "memory", "skills"]


COMMAND, COMMAND_ALIAS = "bash", "run_command"
"""The tool that runs commands, and the other name under which it may be allowed and called."""


class ToolSpec(Struct, frozen=True, omit_defaults=True):
    """The declaration of a tool. It is journaled when a run starts, so that a run that is taken up later,
    by other code, is decided by what the tool said of itself when it was called."""

    name: str
    description: str
    schema: dict[str, Any]
    """JSON Schema of the arguments."""
    effect: Effect = "external"
    repeatable: bool = False
    """May be run again when it is not known whether it ran."""
    parallel: bool | None = None
    """May run beside other parallel calls. None: when its effect is `none` or `read`."""
    interactive: bool = False
    """Needs a person: nothing else runs beside it."""
    poller: bool = False
    """Asks again and again by design: the loop guard does not count it."""
    timeout: float | None = None
    """Seconds; None: the engine's default; 0: none."""
    paths: tuple[str, ...] = ()
    """The arguments that name what it touches, files or folders: beside it may run what touches others."""
    needs: tuple[Need, ...] = ()
    """What it cannot work without."""
    asks_a_person: bool = False
    """It is not run: its result is what a person answers."""
    delegates: Literal["spawn", "send", "invoke"] | None = None
    """It is not run: its result is what comes of a run under this one."""
    alias_of: str | None = None
    """In older journals: the tool that this is another name of. Rules, hooks and grants for that one apply here."""
    aliases: tuple[str, ...] = ()
    """Other names under which it may be allowed and called. Rules, hooks and grants may use any of them."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases) if self.alias_of is None else (self.name, self.alias_of)

    @property
    def known_as(self) -> str:
        """The name by which secrets are granted and calls are allowed."""
        return self.alias_of or self.name

    @property
    def writes(self) -> bool:
        return self.effect in ("write", "external")

    @property
    def concurrent(self) -> bool:
        """Whether it may run beside other calls of the same turn."""
        if self.interactive:
            return False
        return not self.writes if self.parallel is None else self.parallel
