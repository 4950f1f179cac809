"""The commands `treadle memory`."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

from treadle.surfaces.cli.command_line import Argument, Group, Option

memory_app = Group("memory")

Json = Annotated[bool, Option("--json", help="Print JSON, one value per line.")]
OneAgent = Annotated[str, Option("-a", "--agent", metavar="NAME", help="The agent. Default: `default`.")]
AnyAgent = Annotated[
    str | None, Option("-a", "--agent", metavar="NAME", help="Only this agent. Default: all agents.")
]
OneUser = Annotated[str, Option("--user", metavar="NAME", help="The user. Default: the local user.")]
AnyUser = Annotated[str | None, Option("--user", metavar="NAME", help="Only this user. Default: all users.")]
Ids = Annotated[list[str], Argument(metavar="MEMORY…", help="The ids of memories, mem_…")]


class Kind(StrEnum):
    """What can be said after --kind."""

    long_term = "long_term"
    journal = "journal"


@memory_app.command("list")
def list_memories(
    agent: AnyAgent = None,
    kind: Annotated[Kind | None, Option(help="Only this kind.")] = None,
    limit: Annotated[int, Option(min=1, help="Maximum number of rows.")] = 50,
    user: AnyUser = None,
    json: Json = False,
) -> None:
    """List memories, newest first."""
    from treadle.surfaces.cli import memory, process

    process.perform(partial(memory.list_memories, agent, None if kind is None else kind.value, limit, user, json))


@memory_app.command("search")
def search_memories(
    text: Annotated[str, Argument(metavar="TEXT", help="The text to search for.")],
    agent: OneAgent = "default",
    limit: Annotated[int, Option(min=1, max=50, help="Maximum number of memories.")] = 5,
    user: OneUser = "local",
    json: Json = False,
) -> None:
    """Show which memories an agent recalls for a text in a run of a user, with their scores. An agent with
    `memory: {shared: true}` recalls the memories of all users."""
    from treadle.surfaces.cli import memory, process

    process.perform(partial(memory.search_memories, agent, text, limit, user, json))


@memory_app.command("add")
def add_memory(
    text: Annotated[str, Argument(metavar="TEXT", help="The text. `-` reads it from standard input.")],
    agent: OneAgent = "default",
    kind: Annotated[Kind, Option(help="A fact, or a journal note.")] = Kind.long_term,
    pinned: Annotated[bool, Option("--pinned", help="Pin the memory.")] = False,
    user: OneUser = "local",
    json: Json = False,
) -> None:
    """Add a memory."""
    from treadle.surfaces.cli import memory, process

    process.perform(partial(memory.add_memory, agent, text, kind.value, pinned, user, json))


@memory_app.command("pin")
def pin_memories(memories: Ids, json: Json = False) -> None:
    """Pin memories: their score does not decay."""
    from treadle.surfaces.cli import memory, process

    process.perform(partial(memory.pin_memories, memories, True, json))


@memory_app.command("unpin")
def unpin_memories(memories: Ids, json: Json = False) -> None:
    """Unpin memories."""
    from treadle.surfaces.cli import memory, process

    process.perform(partial(memory.pin_memories, memories, False, json))


@memory_app.command("forget")
def forget_memories(memories: Ids, json: Json = False) -> None:
    """Delete memories with their index entries. The journals of runs that saved or recalled them keep the text."""
    from treadle.surfaces.cli import memory, process

    process.perform(partial(memory.forget_memories, memories, json))


@memory_app.command("assign")
def assign_memories(
    user: Annotated[str, Argument(metavar="USER", help="The new owner. `local` is the local user.")],
    memories: Annotated[list[str] | None, Argument(metavar="[MEMORY…]", help="The ids of memories, mem_…")] = None,
    agent: AnyAgent = None,
    from_user: Annotated[
        str | None, Option("--from-user", metavar="NAME", help="Only this user. Default: all users.")
    ] = None,
    json: Json = False,
) -> None:
    """Assign memories to a user: those that match all of the ids, --agent and --from-user. At least one of them is
    required. A fact that the user already has is merged."""
    from treadle.surfaces.cli import memory, process

    process.perform(partial(memory.assign_memories, user, memories or (), agent, from_user, json))


@memory_app.command("export")
def export_memories(agent: AnyAgent = None, user: AnyUser = None) -> None:
    """Print memories as JSON, one per line, oldest first."""
    from treadle.surfaces.cli import memory, process

    process.perform(partial(memory.export_memories, agent, user))


@memory_app.command("import")
def import_memories(
    file: Annotated[Path, Argument(metavar="FILE", help="An exported file. `-` reads standard input.")],
    agent: Annotated[
        str | None, Option("-a", "--agent", metavar="NAME", help="Assign all memories to this agent.")
    ] = None,
    user: Annotated[str | None, Option("--user", metavar="NAME", help="Assign all memories to this user.")] = None,
    json: Json = False,
) -> None:
    """Import memories from a file, one JSON object per line. If one is invalid, none is imported. Memories that an
    agent already has are skipped."""
    from treadle.surfaces.cli import memory, process

    process.perform(partial(memory.import_memories, file, agent, user, json))
