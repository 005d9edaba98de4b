# SPDX-License-Identifier: MIT
"""How often the kernel copies a byte until the reader has it, counted, not timed.

Probes on the functions that copy what is read, received or written sum up the bytes, on the
whole machine; the module counts what it copies itself. What a program copies from one of its buffers to another is not
seen.
"""
import dataclasses
import os
import re

import patterns
from systems import Unusable, drop_caches, run, write

TRACING = "/sys/kernel/tracing"
TRIGGER = "hist:keys=common_pid:vals=bytes"
# The copying itself (_copy_to_iter and its like) takes no probes; these call it. An entry is a
# function and where it gets the number of bytes, or "r", a function and its result.
PROBES = {
    "page_cache": ("r", "filemap_read", "$retval"),             # to readers
    "socket": ("p", "simple_copy_to_iter", "%si"),              # to who receives
    "write": ("r", "xfs_file_buffered_write", "$retval"),       # into the page cache
    "fuse": ("p", "fuse_copy_page", "%cx"),                     # to and from a FUSE server
}
# Without these two what is counted says nothing.
NEEDED = {"page_cache", "socket"}


def probe(text):
    """One line for kprobe_events, which cannot be opened as Python appends to files."""
    events = os.open(f"{TRACING}/kprobe_events", os.O_WRONLY | os.O_APPEND)
    try:
        os.write(events, text.encode() + b"\n")
    finally:
        os.close(events)


class Counter:
    def __init__(self):
        self.names = []
        self.refused = []
        for name, (kind, function, place) in PROBES.items():
            try:
                probe(f"{kind}:bench/{name} {function} bytes={place}:u64")
            except OSError:
                self.refused.append(function)
            else:
                self.names.append(name)
        if not NEEDED <= set(self.names):
            raise Unusable(f"this kernel takes no probe on {', '.join(self.refused)}")

    def path(self, name, file):
        return f"{TRACING}/events/bench/{name}/{file}"

    def begin(self):
        for name in self.names:
            # A result below zero is an error, and none of bytes.
            write(self.path(name, "trigger"), f"{TRIGGER} if bytes < {1 << 40}")

    def end(self):
        """Bytes copied since begin."""
        total = 0
        for name in self.names:
            with open(self.path(name, "hist")) as file:
                total += sum(int(n) for n in re.findall(r"\bbytes:\s+(\d+)", file.read()))
            # Opened anew, it holds no trigger.
            write(self.path(name, "trigger"), "")
        return total

    def close(self):
        for name in self.names:
            probe(f"-:bench/{name}")


def delivered():
    """Bytes that the module copied from the daemon's buffers into pages."""
    return int(re.search(r'"deliver_bytes":\s*(\d+)', run("wfs", "stat", "--json")).group(1))


def one(bench, counter, pattern, state, system):
    name = dataclasses.replace(pattern, name=f"copies-{pattern.name}", unit="copies/B")
    try:
        if state == "cold":
            system.make_cold(pattern.data)
        else:
            drop_caches()
        system.ready()
        before = delivered()
        counter.begin()
        figures = bench.read(pattern, system)
        if state == "cold":
            system.settle()
        figures["copied"] = counter.end() + delivered() - before
    except (Unusable, OSError) as error:
        figures = {"failed": str(error)}
    bench.record(name, state, system.name, 0, figures)


def count(bench, all_systems):
    if not os.path.isdir(TRACING):
        return
    try:
        counter = Counter()
    except Unusable as error:
        bench.say(f"copies are not counted: {error}")
        return
    bench.say("counting copies" + (f", without {counter.refused}" if counter.refused else ""))
    by_name = {p.name: p for p in patterns.PATTERNS}
    for name in ("read1m", "mmap-scan"):
        for system in all_systems:
            if system.name in bench.failed:
                continue
            one(bench, counter, by_name[name], "nvme", system)
            if system.name == "wfs":
                one(bench, counter, by_name[name], "cold", system)
    counter.close()
