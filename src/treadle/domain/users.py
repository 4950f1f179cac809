"""Users, who own sessions, runs and memories.

A user is just a name. The local user always exists and owns what is done on the command line and with the library.
A token works for the user that it was created for, or else for a user of its own, whose name is the ID of the
token."""

import re

UserId = str
"""The name of a user."""

LOCAL_USER: UserId = "local"
"""Owns what the command line, the library, heartbeats and databases from before there were users have created."""
MAX_USER_CHARACTERS = 100
ACCEPTED_USER = (
    f"1 to {MAX_USER_CHARACTERS} of the characters A-Z a-z 0-9 . _ @ + | -, "
    "of which the first is a letter or a digit"
)
_USER = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._@+|-]{{0,{MAX_USER_CHARACTERS - 1}}}")


def journaled_owner(user: UserId) -> UserId | None:
    """Return an owner as it is journaled: None for the local user, as before there were others."""
    return None if user == LOCAL_USER else user


def check_user(name: UserId) -> None:
    """Raise ValueError if this is not a valid name of a user.

    Colons are reserved for the users of channels (`telegram:1234`). Names that only look like the local user are
    refused: a token works for the local user only if its creator has written exactly that name."""
    if not _USER.fullmatch(name):
        raise ValueError(f"a user is named with {ACCEPTED_USER}; found {name[:MAX_USER_CHARACTERS]!r}")
    if name != LOCAL_USER and name.lower() == LOCAL_USER:
        raise ValueError(f"`{name}` could be mistaken for the local user, whose name is `{LOCAL_USER}`")
