"""Filters for system calls (seccomp), as programs for the kernel's BPF machine: what no command of an agent needs.

Numbers are those of the kernel's own tables, for x86-64 and for arm64. On other machines there is no filter."""

import os
import struct
from collections.abc import Iterable

EPERM, ENOSYS = 1, 38
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x25, 0x45, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
X32 = 0x40000000
"""The bit of a number that chooses the x32 interface, which has numbers of its own for some calls."""
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_COLUMN = {"x86_64": 0, "aarch64": 1}

KEYS: dict[str, tuple[int | None, int | None]] = {
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
}  # fmt: skip
"""The kernel's key rings, where tickets and passwords of the user may be."""
REFUSED: dict[str, tuple[int | None, int | None]] = {
    **KEYS,
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "bpf": (321, 280),
    # the kernel itself
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "create_module": (174, None), "query_module": (178, None), "get_kernel_syms": (177, None),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "acct": (163, 89), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266), "sethostname": (170, 161),
    "setdomainname": (171, 162), "iopl": (172, None), "ioperm": (173, None), "syslog": (103, 116),
    "uselib": (134, None), "vhangup": (153, 58), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "nfsservctl": (180, 42), "lookup_dcookie": (212, 18),
    "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    # mounts and namespaces
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "setns": (308, 268),
}  # fmt: skip
"""Refused with EPERM, by name: the numbers on x86-64 and on arm64."""
ABSENT: dict[str, tuple[int | None, int | None]] = {
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "clone3": (435, 435),
}  # fmt: skip
"""Said not to exist (ENOSYS), so that programs use what came before: of clone3 no filter can see the flags."""
CLONE_NEWUSER, TIOCSTI, TIOCLINUX = 0x10000000, 0x5412, 0x541C
_CLONE, _UNSHARE, _IOCTL = (56, 220), (272, 97), (16, 29)


def sandbox_filter(machine: str | None = None) -> bytes | None:
    """Return the filter of a confined command; None where this machine has none."""
    return _program(machine or _machine(), REFUSED, ABSENT, namespaces=True)


def unconfined_filter(machine: str | None = None) -> bytes | None:
    """Return the filter of a command without a sandbox: the key rings, and typing into terminals. What it runs may
    debug its own processes. No process below it can take the filter off, so it also marks them."""
    return _program(machine or _machine(), KEYS, {}, namespaces=False)


def why_no_filter() -> str:
    """Return why this machine has no filter; empty where it has one."""
    machine = _machine()
    return "" if machine in ARCHITECTURES else f"there is no table of system calls for {machine}"


def _machine() -> str:
    machine = os.uname().machine
    return machine if struct.calcsize("P") == 8 else f"32-bit programs on {machine}"


def _program(
    machine: str,
    refused: dict[str, tuple[int | None, int | None]],
    absent: dict[str, tuple[int | None, int | None]],
    *,
    namespaces: bool,
) -> bytes | None:
    if machine not in ARCHITECTURES:
        return None
    column = _COLUMN[machine]
    made = [
        _do(_LOAD, _ARCHITECTURE),
        _do(_EQUAL, ARCHITECTURES[machine], 1, 0),
        _do(_RETURN, _KILL_PROCESS),  # a program for another processor, whose numbers mean something else
        _do(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        made += [_do(_AT_LEAST, X32, 0, 1), _do(_RETURN, _ERRNO | EPERM)]
    for numbers, error in ((refused, EPERM), (absent, ENOSYS)):
        for first, last in _ranges(number[column] for number in numbers.values()):
            made += [_do(_AT_LEAST, first, 0, 2), _do(_ABOVE, last, 1, 0), _do(_RETURN, _ERRNO | error)]
    for value in (TIOCSTI, TIOCLINUX):
        made += _unless_argument(_IOCTL[column], 1, _EQUAL, value, is_last=value == TIOCLINUX)
    if namespaces:
        made += _unless_argument(_CLONE[column], 0, _ANY_BIT, CLONE_NEWUSER)
        made += _unless_argument(_UNSHARE[column], 0, _ANY_BIT, CLONE_NEWUSER)
    made.append(_do(_RETURN, _ALLOW))
    return b"".join(made)


def _unless_argument(number: int, argument: int, compare: int, value: int, *, is_last: bool = True) -> list[bytes]:
    """Refuse a call with this argument. The number is loaded again where another check of the same call follows."""
    after = _do(_RETURN, _ALLOW) if is_last else _do(_LOAD, _NUMBER)
    return [
        _do(_EQUAL, number, 0, 4),
        _do(_LOAD, 16 + 8 * argument),  # the lower half: both machines are little-endian
        _do(compare, value, 0, 1),
        _do(_RETURN, _ERRNO | EPERM),
        after,
    ]


def _do(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return one instruction: struct sock_filter."""
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _ranges(numbers: Iterable[int | None]) -> list[tuple[int, int]]:
    """Return the numbers as ranges of consecutive ones: fewer comparisons for every call that is allowed."""
    found: list[tuple[int, int]] = []
    for number in sorted(number for number in numbers if number is not None):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
