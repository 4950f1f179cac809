"""System call filters (seccomp), as programs for the kernel's BPF machine: they block calls that no command of an
agent needs.

The numbers are those of the kernel's tables for x86-64 and arm64. Other machines have no filter."""

import os
import struct
from collections.abc import Iterable

EPERM, ENOSYS = 1, 38
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x25, 0x45, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
X32 = 0x40000000
"""The bit that selects the x32 interface, which has its own numbers for some calls."""
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_COLUMN = {"x86_64": 0, "aarch64": 1}

KEYS: dict[str, tuple[int | None, int | None]] = {
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
}  # fmt: skip
"""The kernel's key rings, which may contain tickets and passwords of the user."""
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
"""Calls that fail with EPERM, with their numbers on x86-64 and arm64."""
ABSENT: dict[str, tuple[int | None, int | None]] = {
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "clone3": (435, 435),
}  # fmt: skip
"""Calls that fail with ENOSYS, so that programs fall back to older ones: a filter cannot see the flags of clone3.
"""
CLONE_NEWUSER, TIOCSTI, TIOCLINUX = 0x10000000, 0x5412, 0x541C
AF_BLUETOOTH, AF_VSOCK, AF_QIPCRTR = 31, 40, 42
"""Kinds of sockets that reach other machines and that no network namespace confines: a sandbox without a network
would reach the host of a virtual machine."""
_CLONE, _UNSHARE, _IOCTL, _SOCKET = (56, 220), (272, 97), (16, 29), (41, 198)


def build_sandbox_filter(machine: str | None = None) -> bytes | None:
    """Return the filter of a confined command, or None if this machine has none."""
    return _build_program(machine or _machine_name(), REFUSED, ABSENT, namespaces=True)


def build_unconfined_filter(machine: str | None = None) -> bytes | None:
    """Return the filter of a command without a sandbox: it blocks the key rings and typing into terminals. The
    command may debug its own processes. No descendant can remove the filter, so it also marks them."""
    return _build_program(machine or _machine_name(), KEYS, {}, namespaces=False)


def explain_missing_filter() -> str:
    """Return why this machine has no filter, or an empty string if it has one."""
    machine = _machine_name()
    return "" if machine in ARCHITECTURES else f"there is no table of system calls for {machine}"


def _machine_name() -> str:
    machine = os.uname().machine
    return machine if struct.calcsize("P") == 8 else f"32-bit programs on {machine}"


def _build_program(
    machine: str,
    refused: dict[str, tuple[int | None, int | None]],
    absent: dict[str, tuple[int | None, int | None]],
    *,
    namespaces: bool,
) -> bytes | None:
    if machine not in ARCHITECTURES:
        return None
    column = _COLUMN[machine]
    program = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_EQUAL, ARCHITECTURES[machine], 1, 0),
        _instruction(_RETURN, _KILL_PROCESS),  # another architecture, where the numbers mean something else
        _instruction(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        program += [_instruction(_AT_LEAST, X32, 0, 1), _instruction(_RETURN, _ERRNO | EPERM)]
    for numbers, error in ((refused, EPERM), (absent, ENOSYS)):
        for first, last in _merge_ranges(number[column] for number in numbers.values()):
            program += [
                _instruction(_AT_LEAST, first, 0, 2),
                _instruction(_ABOVE, last, 1, 0),
                _instruction(_RETURN, _ERRNO | error),
            ]
    for value in (TIOCSTI, TIOCLINUX):
        program += _refuse_argument(_IOCTL[column], 1, _EQUAL, value, is_last=value == TIOCLINUX)
    if namespaces:
        for value in (AF_BLUETOOTH, AF_VSOCK, AF_QIPCRTR):
            program += _refuse_argument(_SOCKET[column], 0, _EQUAL, value, is_last=value == AF_QIPCRTR)
        program += _refuse_argument(_CLONE[column], 0, _ANY_BIT, CLONE_NEWUSER)
        program += _refuse_argument(_UNSHARE[column], 0, _ANY_BIT, CLONE_NEWUSER)
    program.append(_instruction(_RETURN, _ALLOW))
    return b"".join(program)


def _refuse_argument(number: int, argument: int, compare: int, value: int, *, is_last: bool = True) -> list[bytes]:
    """Refuse a call with this argument. The number is loaded again if another check of the same call follows."""
    after = _instruction(_RETURN, _ALLOW) if is_last else _instruction(_LOAD, _NUMBER)
    return [
        _instruction(_EQUAL, number, 0, 4),
        _instruction(_LOAD, 16 + 8 * argument),  # the lower half: both machines are little-endian
        _instruction(compare, value, 0, 1),
        _instruction(_RETURN, _ERRNO | EPERM),
        after,
    ]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return one instruction (struct sock_filter)."""
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _merge_ranges(numbers: Iterable[int | None]) -> list[tuple[int, int]]:
    """Return the numbers as ranges of consecutive ones, so that allowed calls need fewer comparisons."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(number for number in numbers if number is not None):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
