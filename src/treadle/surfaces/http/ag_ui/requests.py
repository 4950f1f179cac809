"""What an AG-UI client sends: `RunAgentInput` of AG-UI 1.0. What Treadle does not use is accepted and left out."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Role = Literal["developer", "system", "assistant", "user", "tool", "activity", "reasoning"]
Id = Annotated[str, Meta(min_length=1, max_length=500)]


class SourceData(Struct, frozen=True, rename="camel", tag="data"):
    """Bytes in base64."""

    value: str
    mime_type: str


class SourceUrl(Struct, frozen=True, rename="camel", tag="url"):
    value: str


class SourceFile(Struct, frozen=True, rename="camel", tag="file"):
    """A handle of a provider, which means nothing here."""

    value: str


Source = SourceData | SourceUrl | SourceFile


class PartText(Struct, frozen=True, tag="text"):
    text: str


class PartImage(Struct, frozen=True, tag="image"):
    source: Source


class PartAudio(Struct, frozen=True, tag="audio"):
    source: Source


class PartVideo(Struct, frozen=True, tag="video"):
    source: Source


class PartDocument(Struct, frozen=True, tag="document"):
    source: Source


Part = PartText | PartImage | PartAudio | PartVideo | PartDocument


class CalledTool(Struct, frozen=True):
    name: str
    arguments: str


class AssistantCall(Struct, frozen=True):
    """A tool call in a message of the assistant."""

    id: str
    function: CalledTool


class ThreadMessage(Struct, frozen=True, rename="camel"):
    """A message of the conversation as the client has it."""

    id: Id
    role: Role
    content: str | tuple[Part, ...] | dict[str, Any] | None = None
    tool_calls: tuple[AssistantCall, ...] | None = None
    tool_call_id: str | None = None
    error: str | None = None

    @property
    def calls(self) -> tuple[AssistantCall, ...]:
        return self.tool_calls or ()


class InputTool(Struct, frozen=True):
    """A tool that the client runs itself."""

    name: str
    description: str
    parameters: dict[str, Any] | None = None


class InputContext(Struct, frozen=True):
    """What the application tells the agent for this run."""

    description: str
    value: str


class ResumeEntry(Struct, frozen=True, rename="camel"):
    """The answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class RunInput(Struct, frozen=True, rename="camel"):
    """`RunAgentInput` of AG-UI 1.0."""

    thread_id: Id
    run_id: Id
    messages: Annotated[tuple[ThreadMessage, ...], Meta(max_length=10_000)]
    state: Any = None
    tools: tuple[InputTool, ...] | None = None
    context: Annotated[tuple[InputContext, ...], Meta(max_length=1000)] | None = None
    resume: Annotated[tuple[ResumeEntry, ...], Meta(max_length=1000)] | None = None
