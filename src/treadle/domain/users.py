"""Users, who own sessions, runs and memories.

A user is just a name. The local user always exists and owns what is done on the command line and with the library.
A token works for the user that it was created for, or else for a user of its own, whose name is the ID of the
token."""

import hashlib
import re

UserId = str
"""The name of a user."""

LOCAL_USER: UserId = "local"
"""Owns what the command line, the library and heartbeats create."""
MAX_NAME_CHARACTERS, MAX_CLIENT_USER_CHARACTERS = 100, 64
MAX_USER_CHARACTERS = MAX_NAME_CHARACTERS + 1 + MAX_CLIENT_USER_CHARACTERS
ACCEPTED_USER = (
    f"1 to {MAX_NAME_CHARACTERS} of the characters A-Z a-z 0-9 . _ @ + | -, "
    "of which the first is a letter or a digit"
)
_USER = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._@+|-]{{0,{MAX_NAME_CHARACTERS - 1}}}")
_CLIENT_USER = re.compile(rf"[A-Za-z0-9._@+|-]{{1,{MAX_CLIENT_USER_CHARACTERS}}}")
USER_PATTERN = f"^{_USER.pattern}(/{_CLIENT_USER.pattern})?$"
SEPARATOR = "/"
"""Between the user of a client, such as a token, and the user whom the client serves."""


def journaled_owner(user: UserId) -> UserId | None:
    """Return an owner as it is journaled: None for the local user."""
    return None if user == LOCAL_USER else user


def check_user(name: UserId) -> None:
    """Raise ValueError if this is not a valid name of a user.

    A slash separates a user whom a client serves from the user of the client. Colons are reserved for the users of
    channels (`telegram:1234`). Names that only look like the local user are refused: a token works for the local
    user only if its creator has written exactly that name."""
    base, separator, served = name.partition(SEPARATOR)
    if not _USER.fullmatch(base) or (separator and not _CLIENT_USER.fullmatch(served)):
        raise ValueError(f"a user is named with {ACCEPTED_USER}; found {name[:MAX_USER_CHARACTERS]!r}")
    if base != LOCAL_USER and base.lower() == LOCAL_USER:
        raise ValueError(f"`{name}` could be mistaken for the local user, whose name is `{LOCAL_USER}`")


def make_client_user(client: UserId, name: str) -> UserId:
    """Return the user that a client serves under a name. Users of different clients are different, whatever their
    names are. A name that is too long or has other characters is replaced with its digest."""
    if not _CLIENT_USER.fullmatch(name) or name.startswith("sha256-"):
        name = f"sha256-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"
    return f"{client}{SEPARATOR}{name}"


def is_client_user(user: UserId, client: UserId) -> bool:
    """Return whether a client serves this user."""
    return user.startswith(f"{client}{SEPARATOR}")
