"""The first program of every embedded child: ties its life to the parent's, then becomes the given command.

Run as a script, `python -I -S guard.py PARENT_PID SIGNAL COMMAND…`, without imports of this package, so that it starts
as fast as a bare interpreter. The kernel then sends SIGNAL when the parent ends, however it ends. The setting survives
the exec; the process id does not change. A function run between fork and exec would do the same, but is unsafe if the
parent has threads. Only Linux has this call. Elsewhere, children of a parent that was killed run until the next
`sidecar up` ends them.
"""

import os
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(argv: list[str]) -> None:
    """Have this process receive the signal `argv[2]` when the parent `argv[1]` ends, and become `argv[3:]`; does not
    return.
    """
    parent, signum, command = int(argv[1]), int(argv[2]), argv[3:]
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415  not needed, and not always available, on other systems

        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signum, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it ended before the call above: the signal would never be sent
        sys.exit(f"parent {parent} is gone")
    try:
        os.execvp(command[0], command)  # noqa: S606  intended: no shell
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv)
