# SPDX-License-Identifier: MIT
"""How often the kernel copies a byte until the reader has it, counted, not timed.

Probes on the functions through which the kernel copies sum up the bytes they are asked to
copy, on the whole machine. What a program copies from one of its buffers to another is not
seen.
"""
import dataclasses
import os
import re

import patterns
from systems import Unusable, drop_caches, run, write

TRACING = "/sys/kernel/tracing"
TRIGGER = "hist:keys=common_pid:vals=bytes"
# Function and the register in which it gets the number of bytes.
PROBES = {
    "to_user": ("_copy_to_iter", "%si"),
    "from_user": ("_copy_from_iter", "%si"),
    "write": ("copy_page_from_iter_atomic", "%dx"),
    "fuse": ("fuse_copy_page", "%cx"),
}


class Counter:
    def __init__(self):
        self.names = []
        for name, (function, register) in PROBES.items():
            try:
                with open(f"{TRACING}/kprobe_events", "a") as events:
                    events.write(f"p:bench/{name} {function} bytes={register}:u64\n")
            except OSError:
                continue            # that part of the kernel is not there
            self.names.append(name)
        if "to_user" not in self.names:
            raise Unusable("this kernel takes no probe on _copy_to_iter")

    def path(self, name, file):
        return f"{TRACING}/events/bench/{name}/{file}"

    def begin(self):
        for name in self.names:
            write(self.path(name, "trigger"), TRIGGER)

    def end(self):
        """Bytes copied since begin."""
        total = 0
        for name in self.names:
            with open(self.path(name, "hist")) as file:
                total += sum(int(n) for n in re.findall(r"\bbytes:\s+(\d+)", file.read()))
            write(self.path(name, "trigger"), "!" + TRIGGER)
        return total

    def close(self):
        for name in self.names:
            with open(f"{TRACING}/kprobe_events", "a") as events:
                events.write(f"-:bench/{name}\n")


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
    bench.say("counting copies")
    by_name = {p.name: p for p in patterns.PATTERNS}
    for name in ("read1m", "mmap-scan"):
        for system in all_systems:
            if system.name in bench.failed:
                continue
            one(bench, counter, by_name[name], "nvme", system)
            if system.name == "wfs":
                one(bench, counter, by_name[name], "cold", system)
    counter.close()
