"""Everything that a surface may say about a run that it starts."""

from typing import Any

from msgspec import Struct

from treadle.domain.agents import AgentSpec
from treadle.domain.ids import RunId, SessionId
from treadle.domain.messages import Message
from treadle.domain.modes import ApprovalMode
from treadle.domain.permissions import Asker
from treadle.domain.runs import RunPart
from treadle.domain.tools import ClientTool, StandIns, ToolChoice
from treadle.domain.users import LOCAL_USER, UserId


class Overrides(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings for one run in place of those of its agent. A run cannot have more tools than its agent."""

    model: str | None = None
    limits: dict[str, Any] | None = None
    deadline: float | str | None = None
    cost: float | None = None
    tools: tuple[str, ...] | None = None
    output: dict[str, Any] | None = None
    settings: dict[str, Any] | None = None
    """All settings of the agent, in place of those that are saved: to try changes. Requires the scope `admin`."""


class ChosenAgent(Struct, frozen=True):
    """An agent as a caller has named it. The version is None if the caller has named none."""

    spec: AgentSpec
    version: int | None = None


class RequestedRun(Struct, frozen=True, forbid_unknown_fields=True):
    """A message for an agent, and the terms of the run that answers it.

    Surfaces of this machine make one. Callers of the HTTP API send `NewRun`, which has only the fields that are
    theirs to choose."""

    agent: AgentSpec
    """The agent as the surface has read it."""
    message: Message
    session_id: SessionId | None = None
    follows: RunPart | None = None
    """The part of a run that the message answers. The message continues the session of that run; if the session has
    gone on since, it starts a new one with the conversation up to the end of that part."""
    resumed_from: RunId | None = None
    """The ended run that this one continues, in the session of that run."""
    asker: Asker | None = None
    """Where the sender can be asked questions, if at all."""
    before: tuple[Message, ...] = ()
    """The earlier conversation, for a new session that starts with it."""
    instructions: str = ""
    """Additional instructions for this run, after those of the agent."""
    plain: bool = False
    """It is a message even if it looks like a command: it was not typed by a user."""
    user: UserId = LOCAL_USER
    """The owner of a new session. An existing session, and the run in it, keep the owner of the session."""
    anonymous: bool = False
    """The sender serves several people and did not name one: nothing is recalled or saved as a memory."""
    only_own: bool = False
    """The sender cannot see sessions and runs of other users."""
    has_own_model: bool = False
    """The sender chose the model of this run: the model of the session does not apply."""
    tags: tuple[str, ...] = ()
    """Tags of the run and its child runs. They are checked when the run is submitted."""
    metadata: dict[str, str] = {}
    """What the sender notes about the run and its child runs, by name."""
    trace_parent: str = ""
    """The span in which it is submitted, as a W3C `traceparent`."""
    own_deps: bool = False
    """The program provides deps to this run, in memory."""
    tool_choice: ToolChoice | None = None
    """Whether the model may, must or must not call tools. That it must applies to the first step."""
    client_tools: tuple[ClientTool, ...] = ()
    """Tools that the sender runs itself."""
    version: int | None = None
    """The version of the agent. None: the current one. 0: it has none, because a program defines it."""
    mode: ApprovalMode | None = None
    """The mode of the session from this message on; None: as it is."""
    stand_ins: StandIns | None = None
    """Recorded results in place of those of tools. None: the tools run."""
    after_current: bool = False
    """It always starts a run of its own, after those of the session, even if a run of the session waits."""
