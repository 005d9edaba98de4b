#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Replay what the device mapper's log-writes target has recorded.

    replay_log.py points LOG                 how many flush points there are
    replay_log.py replay LOG STATE DISK N    write to DISK all that came before flush point N

The format is that of the kernel's Documentation/admin-guide/device-mapper/log-writes.rst
and drivers/md/dm-log-writes.c. A write that had not completed when a flush began is
recorded after the flush: what stands before it is what a disk that lost its power just
after the flush is sure to hold. STATE is a file that keeps the place of the last replay, so
that replays of growing N go on from there.
"""
import os
import struct
import sys

MAGIC = 0x6A736677736872
SUPER = struct.Struct("<QQQI")
ENTRY = struct.Struct("<QQQQ")
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8


def entries(log, start, index):
    """(offset after it, index, sector, sectors, flags, place of its data) of each entry."""
    magic, version, count, size = SUPER.unpack(os.pread(log, SUPER.size, 0))
    if magic != MAGIC or version != 1:
        sys.exit("replay_log.py: not a log of log-writes")
    offset = start or size
    while index < count:
        sector, sectors, flags, _ = ENTRY.unpack(os.pread(log, ENTRY.size, offset))
        data = offset + size
        offset = data + (0 if flags & DISCARD else sectors * size)
        index += 1
        yield offset, index, sector * size, sectors * size, flags, data


def points(log):
    return sum(1 for entry in entries(log, 0, 0) if entry[4] & (FLUSH | FUA))


def replay(log, state, disk, wanted):
    offset, index, seen = 0, 0, 0
    if os.path.exists(state):
        with open(state) as file:
            offset, index, seen = map(int, file.read().split())
    if seen >= wanted:
        return
    for offset, index, at, length, flags, data in entries(log, offset, index):
        done = 0
        while done < length and not flags & MARK:
            step = min(length - done, 1 << 20)
            block = bytes(step) if flags & DISCARD else os.pread(log, step, data + done)
            if len(block) != step:
                sys.exit("replay_log.py: the log ends early")
            os.pwrite(disk, block, at + done)
            done += step
        seen += 1 if flags & (FLUSH | FUA) else 0
        if seen == wanted:
            break
    else:
        sys.exit(f"replay_log.py: there are {seen} flush points, not {wanted}")
    os.fsync(disk)
    with open(state, "w") as file:
        file.write(f"{offset} {index} {seen}\n")


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "points":
        print(points(os.open(arguments[1], os.O_RDONLY)))
    elif len(arguments) == 5 and arguments[0] == "replay":
        replay(os.open(arguments[1], os.O_RDONLY), arguments[2],
               os.open(arguments[3], os.O_RDWR), int(arguments[4]))
    else:
        sys.exit(__doc__)


main(sys.argv[1:])
