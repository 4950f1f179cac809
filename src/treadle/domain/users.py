"""Users: for whom sessions, runs and memories are kept. What belongs to a user names it as its *owner*.

A user is a name and nothing else. There is one that nobody has to create: the local user, who works on the command
line and with the library. A token works for a user too: the one that it was created for, else one of its own, whose
name is the id of the token."""

import re

UserId = str
"""The name of a user."""

LOCAL_USER: UserId = "local"
"""Owns what the command line, the library, heartbeats and databases from before there were users have made."""
MAX_USER_CHARACTERS = 100
ACCEPTED_USER = (
    f"1 to {MAX_USER_CHARACTERS} of the characters A-Z a-z 0-9 . _ @ + | -, "
    "of which the first is a letter or a digit"
)
_USER = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._@+|-]{{0,{MAX_USER_CHARACTERS - 1}}}")


def journaled_owner(user: UserId) -> UserId | None:
    """An owner as it stands in a journal: the local user is left out, as it was before there were others."""
    return None if user == LOCAL_USER else user


def check_user(name: UserId) -> None:
    """Raise ValueError unless this can be the name of a user.

    A colon is kept for the people of channels (`telegram:1234`). What only looks like the local user is refused: a
    token works for the local user where its creator has written exactly that."""
    if not _USER.fullmatch(name):
        raise ValueError(f"a user is named with {ACCEPTED_USER}; found {name[:MAX_USER_CHARACTERS]!r}")
    if name != LOCAL_USER and name.lower() == LOCAL_USER:
        raise ValueError(f"`{name}` would be taken for the local user, whose name is `{LOCAL_USER}`")
