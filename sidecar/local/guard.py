"""The first program of every embedded child: binds its life to the parent's, then becomes the command it was given.

Run as a script, `python -I -S guard.py PARENT_PID SIGNAL COMMAND…`, with no import of ours, so that it costs a bare
interpreter. The kernel then sends SIGNAL when the parent ends, however it ends; the setting survives the exec, the
process id stays. A function run between fork and exec would do the same, but is unsafe where the parent has threads.
Linux alone has this call: elsewhere a parent that is killed outright leaves its children to the next `sidecar up`.
"""

import os
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(argv: list[str]) -> None:
    """Bind this process to `argv[1]` by the signal `argv[2]` and become `argv[3:]`; does not return."""
    parent, signum, command = int(argv[1]), int(argv[2]), argv[3:]
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415  not needed, and not always there, on other systems

        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signum, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it ended before the call above: nobody would send the signal any more
        sys.exit(f"parent {parent} is gone")
    try:
        os.execvp(command[0], command)  # noqa: S606  that there is no shell is the point
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv)
