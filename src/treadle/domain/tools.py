"""The declaration of a tool: its name, its schema and its effect."""

from typing import Any, Literal

from msgspec import Struct

Effect = Literal["none", "read", "write", "external"]
Need = Literal["network", "workspace", "secrets", "results", "memory", "skills", "tools"]


ToolChoiceMode = Literal["auto", "none", "required"]


class ToolChoice(Struct, frozen=True, omit_defaults=True):
    """Whether the model may, must or must not call tools in one model call."""

    mode: ToolChoiceMode = "auto"
    tool: str = ""
    """The tool that it must call; empty: any."""


AUTO = ToolChoice()
COMMAND, COMMAND_ALIAS = "bash", "run_command"
"""The tool that runs commands, and its alias."""
EDIT_TOOLS = ("write_file", "edit_file", "apply_patch")
"""The tools that change files of the workspace."""
PLAN_TOOL = "update_plan"
"""The tool with which a model shows its plan."""


def strip_line(command: str) -> str:
    """Return a command line without the blanks around it. A backslash keeps a blank that follows it."""
    stripped = command.strip(" \t\n")
    return command if stripped.endswith("\\") else stripped


class ToolSpec(Struct, frozen=True, omit_defaults=True):
    """The declaration of a tool. It is journaled when a run starts, so that a run that is resumed later, by other
    code, is decided by what the tool declared then."""

    name: str
    description: str
    schema: dict[str, Any]
    """JSON Schema of the arguments."""
    effect: Effect = "external"
    repeatable: bool = False
    """May run again if it is unknown whether it ran."""
    parallel: bool | None = None
    """May run concurrently with other parallel calls. None: if its effect is `none` or `read`."""
    interactive: bool = False
    """Needs a person: nothing else runs at the same time."""
    needs_approval: bool = False
    """Its calls need an approval unless a rule or a grant allows them."""
    poller: bool = False
    """Repeats calls by design: the loop guard ignores it."""
    timeout: float | None = None
    """In seconds; None for the engine's default; 0 for none."""
    paths: tuple[str, ...] = ()
    """The arguments that name the files or folders it touches. Calls that touch others may run at the same time."""
    patches: tuple[str, ...] = ()
    """The arguments that hold a patch, which names the files that it touches."""
    patch_form: str | None = None
    """The tool that does the same by a patch, for models whose profile asks for it."""
    needs: tuple[Need, ...] = ()
    """What it cannot work without."""
    asks_a_person: bool = False
    """The tool does not run: its result is a person's answer."""
    delegates: Literal["spawn", "send", "invoke"] | None = None
    """The tool does not run: its result is the outcome of a child run."""
    aliases: tuple[str, ...] = ()
    """Other names under which it may be allowed and called. Rules, hooks and grants may use any of them."""
    searchable: bool = False
    """It may be hidden if there are many such tools."""
    hidden: bool = False
    """The model is not shown its schema. It finds the tool with `find_tools` and calls it with `call_tool`."""
    forwards: bool = False
    """The tool does not run: its calls are calls of the hidden tool that they name."""

    client: str | None = None
    """The name of the tool at the client that brought it and runs it. None: a tool of the engine."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @property
    def writes(self) -> bool:
        return self.effect in ("write", "external")

    @property
    def concurrent(self) -> bool:
        """Whether it may run concurrently with other calls of the same turn."""
        if self.interactive:
            return False
        return not self.writes if self.parallel is None else self.parallel


ClientToolMode = Literal["join", "replace", "off"]
"""What an agent does with them: add them to its own tools, use them instead, or refuse them."""


class ClientTool(Struct, frozen=True, omit_defaults=True):
    """A tool that the sender of a message runs itself.

    For example:

        agent = treadle.Agent(name="helper", model="provider/model-id")
        weather = treadle.ClientTool(
            "weather", "Look up the weather.", {"type": "object", "properties": {"city": {"type": "string"}}}
        )
        with treadle.Engine("sqlite:///helper.db") as engine:
            result = engine.run_sync(agent, "Hello.", client_tools=[weather])
            for call in result.client_calls:
                engine.do_sync(engine.deliver_result(result.run_id, call.call_id, "sunny"))
    """

    name: str
    """1 to 64 letters, digits, dashes or underscores."""
    description: str = ""
    schema: dict[str, Any] = {}
    """JSON Schema of the arguments."""


Otherwise = Literal["stop", "execute", "stub"]
"""stop: the run ends there. execute: the tool runs. stub: the model is told a fixed text."""
DEFAULT_STUB = "This call has no result in this test. Continue without it."


class StandIn(Struct, frozen=True, omit_defaults=True):
    """The recorded result of one call."""

    tool: str
    arguments: str
    """The arguments of the call as JSON; the order of keys and blanks do not matter."""
    content: str
    is_error: bool = False


class StandIns(Struct, frozen=True, omit_defaults=True):
    """Results by call. Calls with the same arguments get their results in order; the last one is repeated."""

    results: tuple[StandIn, ...] = ()
    otherwise: Otherwise = "stop"
    """What happens to a call without a recorded result. Tools without effect are always executed."""
    stub: str = DEFAULT_STUB
