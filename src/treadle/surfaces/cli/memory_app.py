"""What can be typed after `treadle memory`. Each command imports its work when it is called."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

memory_app = typer.Typer(help="Look after what agents remember.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")]
OneAgent = Annotated[
    str, typer.Option("-a", "--agent", metavar="NAME", help="The agent; without it the agent `default`.")
]
AnyAgent = Annotated[
    str | None, typer.Option("-a", "--agent", metavar="NAME", help="Only of this agent; without it of all.")
]
OneUser = Annotated[str, typer.Option("--user", metavar="NAME", help="The user; without it the local user.")]
AnyUser = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="Only of this user; without it of all.")
]
Ids = Annotated[list[str], typer.Argument(metavar="MEMORY…", help="The ids of memories: mem_…")]


class Kind(StrEnum):
    """What can be said after --kind."""

    long_term = "long_term"
    journal = "journal"


@memory_app.command("list")
def list_memories(
    agent: AnyAgent = None,
    kind: Annotated[Kind | None, typer.Option(help="Only of this kind.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many.")] = 50,
    user: AnyUser = None,
    json: Json = False,
) -> None:
    """List memories, the newest first."""
    from treadle.surfaces.cli import memory, process

    process.perform(partial(memory.list_memories, agent, None if kind is None else kind.value, limit, user, json))


@memory_app.command("search")
def search_memories(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to look for, as you would say it.")],
    agent: OneAgent = "default",
    limit: Annotated[int, typer.Option(min=1, max=50, help="How many at most.")] = 5,
    user: OneUser = "local",
    json: Json = False,
) -> None:
    """Show what an agent would recall for a text in a run of a user, with the score and how each was found. An
    agent that shares its memories recalls those of all users."""
    from treadle.surfaces.cli import memory, process

    process.perform(partial(memory.search_memories, agent, text, limit, user, json))


@memory_app.command("add")
def add_memory(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to remember; - reads it from standard input.")],
    agent: OneAgent = "default",
    kind: Annotated[Kind, typer.Option(help="A fact, or a note in the journal.")] = Kind.long_term,
    pinned: Annotated[bool, typer.Option("--pinned", help="It does not fade.")] = False,
    user: OneUser = "local",
    json: Json = False,
) -> None:
    """Have an agent remember something."""
    from treadle.surfaces.cli import memory, process

    process.perform(partial(memory.add_memory, agent, text, kind.value, pinned, user, json))


@memory_app.command("pin")
def pin_memories(memories: Ids, json: Json = False) -> None:
    """Let memories fade no more."""
    from treadle.surfaces.cli import memory, process

    process.perform(partial(memory.pin_memories, memories, True, json))


@memory_app.command("unpin")
def unpin_memories(memories: Ids, json: Json = False) -> None:
    """Let memories fade again."""
    from treadle.surfaces.cli import memory, process

    process.perform(partial(memory.pin_memories, memories, False, json))


@memory_app.command("forget")
def forget_memories(memories: Ids, json: Json = False) -> None:
    """Delete memories with their words and vectors. Journals of runs that said or recalled them keep the text."""
    from treadle.surfaces.cli import memory, process

    process.perform(partial(memory.forget_memories, memories, json))


@memory_app.command("assign")
def assign_memories(
    user: Annotated[
        str, typer.Argument(metavar="USER", help="Who owns them from now on; `local` is the local user.")
    ],
    memories: Annotated[
        list[str] | None, typer.Argument(metavar="[MEMORY…]", help="The ids of memories: mem_…")
    ] = None,
    agent: AnyAgent = None,
    from_user: Annotated[
        str | None, typer.Option("--from-user", metavar="NAME", help="Only of this user; without it of all.")
    ] = None,
    json: Json = False,
) -> None:
    """Give memories to a user: those with these ids, of this agent, of that user. All that is said must fit, and
    something must be. A fact that the user has already is merged with it."""
    from treadle.surfaces.cli import memory, process

    process.perform(partial(memory.assign_memories, user, memories or (), agent, from_user, json))


@memory_app.command("export")
def export_memories(agent: AnyAgent = None, user: AnyUser = None) -> None:
    """Print memories as JSON, one per line, the oldest first."""
    from treadle.surfaces.cli import memory, process

    process.perform(partial(memory.export_memories, agent, user))


@memory_app.command("import")
def import_memories(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What was exported; - reads standard input.")],
    agent: Annotated[
        str | None, typer.Option("-a", "--agent", metavar="NAME", help="Whose they are, whatever the file says.")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="The user they are of, whatever the file says.")
    ] = None,
    json: Json = False,
) -> None:
    """Add memories from a file, one JSON object per line: all of them, or none if one is wrong. Those that an agent
    has already are skipped."""
    from treadle.surfaces.cli import memory, process

    process.perform(partial(memory.import_memories, file, agent, user, json))
