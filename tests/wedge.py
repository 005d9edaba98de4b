#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Stop threads of a process one by one, as if they were stuck, while the others run on.

    wedge.py PID [THREAD]...

Without THREAD: all but the main one. Prints "wedged" once they stand still. They go on
when this process ends, or when its standard input closes.
"""
import ctypes
import os
import select
import sys

ATTACH = 16
WALL = 0x40000000

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def threads_of(pid):
    """All but the main one and the kernel's own, which cannot be stopped so."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/comm", encoding="ascii", errors="replace") as comm:
            if int(thread) != pid and not comm.read().startswith("iou-"):
                yield int(thread)


def reap():
    try:
        while os.waitpid(-1, WALL | os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def main():
    pid = int(sys.argv[1])
    for thread in [int(t) for t in sys.argv[2:]] or list(threads_of(pid)):
        if libc.ptrace(ATTACH, thread, None, None):
            sys.exit(f"{thread}: {os.strerror(ctypes.get_errno())}")
        os.waitpid(thread, WALL)
    print("wedged", flush=True)
    # A thread that dies meanwhile is gone for its process only once it was waited for.
    while not select.select([sys.stdin], [], [], 0.1)[0] or sys.stdin.buffer.read1():
        reap()


if __name__ == "__main__":
    main()
