#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The part of the benchmark that runs in a VM.

    guest.py main|small [--only PATTERNS] [--minutes N] [--rounds N]

Measurements go to /out/records.jsonl, one a line, as they are made; progress to standard
error. "main" has all patterns but those on a file of four times the memory, which are
"small"'s. Rounds are outermost, and systems take turns in who is first: when the minutes
are used up, every row has as many rounds as the others.
"""
import argparse
import json
import os
import subprocess
import sys
import time

import copies
import measure
import patterns
import systems
from systems import COPY, ORIGIN, Unusable, drop_caches, run

READER = "/in/bench-bin/reader"
MAKE_DATA = "/in/bench-bin/make_data"
TMP = "/run/bench"
SLOW_ROUNDS = 2
GUARD = 600                     # seconds for one measurement
LONG_AGO = 1577836800           # as make_data has it: old enough to be a proof of the version


def reference(data):
    return f"{ORIGIN}/{data}" if data == "model" else f"{COPY}/{data}"


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.begin = time.monotonic()
        self.records = open("/out/records.jsonl", "w")
        self.failed = {}        # system: why it is left out
        self.nginx = None
        self.with_slow = True   # the slow systems take part in this round
        self.slow_minutes = 0.0     # of this round

    # ---- words ----

    def say(self, text):
        print(f"[{time.monotonic() - self.begin:4.0f} s] {text}", file=sys.stderr, flush=True)

    def minutes(self):
        return (time.monotonic() - self.begin) / 60

    def record(self, pattern, state, system, number, figures):
        """Kept, and returned."""
        figures = dict(figures, pattern=pattern.name, state=state, system=system,
                       round=number, unit=pattern.unit)
        self.records.write(json.dumps(figures) + "\n")
        self.records.flush()
        return figures

    # ---- one measurement ----

    def read(self, pattern, system, repeat=1, block=None):
        """The figures of the reader, or Unusable."""
        name = patterns.READER.get(pattern.name, pattern.name)
        command = [READER, name, system.path(pattern.data), reference(pattern.data), "--measure",
                   "--repeat", str(repeat), "--block", block or pattern.block, *pattern.options]
        if pattern.stamps:
            command.append("--stamps")
        line = run(*command, timeout=GUARD).strip()
        figures = {}
        for word in line.split()[1:]:
            key, _, value = word.partition("=")
            try:
                figures[key] = float(value)
            except ValueError:
                figures[key] = value
        result = {"seconds": figures["ns"] / 1e9, "bytes": figures["bytes"], "passes": repeat,
                  "cpu": figures["cpu"], "own": figures["own"], "minor": figures["minor"],
                  "major": figures["major"], "touched": figures["touched"],
                  "blocks": figures["blocks"]}
        if "pmd" in figures:
            result["huge_bytes"] = figures["pmd"]
        if pattern.whole:
            # Some look at a byte twice, or in eight processes; it is loaded once.
            size = sum(e.stat().st_size for e in os.scandir(reference(pattern.data)))
            result["compared"] = result["bytes"]
            result["bytes"] = result["files_bytes"] = size * repeat
        return result

    def measure(self, pattern, state, system, number, repeat=1, after=None):
        """One record; after() gives figures that are known only when it is over."""
        if system.name in self.failed:
            self.record(pattern, state, system.name, number, {"failed": self.failed[system.name]})
            return
        try:
            system.ready()
            kind = system.check()
            before = memory_trouble()
            if isinstance(system, systems.Curl):
                figures = self.download(pattern, system)
            else:
                figures = self.read(pattern, system, repeat)
            figures.update({key: value - before[key] for key, value in memory_trouble().items()})
            figures["filesystem"] = kind
            if after:
                figures.update(after())
        except (Unusable, OSError) as error:
            figures = {"failed": str(error)}
        record = self.record(pattern, state, system.name, number, figures)
        if "failed" in record:
            self.say(f"{pattern.name}, {state}, {system.name}: {record['failed']}")
        else:
            self.say(f"round {number + 1}, {state}: {pattern.name} {system.name} "
                     f"{measure.rate(record):.0f} {pattern.unit}")

    def download(self, pattern, system):
        before = machine_seconds()
        size, seconds = system.download(pattern.data)
        figures = {"bytes": size, "seconds": seconds, "cpu": machine_seconds() - before}
        if system.keep:
            read = self.read(pattern, system)
            figures["seconds"] += read["seconds"]
            figures["cpu"] += read["cpu"]
        return figures

    # ---- rounds ----

    def start(self, system):
        try:
            system.start()
            system.check()
        except (Unusable, OSError) as error:
            self.failed[system.name] = str(error)
            self.say(f"{system.name} is left out: {error}")

    def cold(self, pattern, system, number, state="cold"):
        """One cold measurement, with what the origin sent for it."""
        if system.name in self.failed:
            self.record(pattern, state, system.name, number, {"failed": self.failed[system.name]})
            return
        try:
            system.make_cold(pattern.data)
        except (Unusable, OSError) as error:
            self.record(pattern, state, system.name, number, {"failed": str(error)})
            self.say(f"{pattern.name}, {state}, {system.name}: {error}")
            return
        open(systems.NGINX_LOG, "w").close()
        before = machine_seconds()

        def after():
            figures = {}
            partial = system.name == "wfs" and not pattern.whole and pattern.stamps
            if partial:
                figures["resident"] = resident_bytes(system.path(pattern.data))
            system.settle()
            figures.update(origin_bytes=sent(), stored_cpu=machine_seconds() - before)
            if partial:
                # The same touches again, counted in units of 64 KiB.
                figures["units"] = self.read(pattern, system, block="64K")["blocks"] * (64 << 10)
            return figures

        self.measure(pattern, state, system, number, after=after)

    def warm_round(self, which, all_systems, number):
        for at, pattern in enumerate(which):
            if not set(pattern.states) & {"nvme", "page"}:
                continue
            for system in turn(all_systems, number + at):
                if system.slow and (not pattern.slow or not self.with_slow):
                    continue
                begin = self.minutes()
                self.warm(pattern, system, number)
                if system.slow:
                    self.slow_minutes += self.minutes() - begin

    def warm(self, pattern, system, number):
        drop_caches()
        if "nvme" in pattern.states:
            self.measure(pattern, "nvme", system, number)
        elif system.name not in self.failed:
            # Everything in memory: what is touched later is there.
            self.fill_pages(system, pattern)
        if "page" not in pattern.states:
            return
        if not system.slow:
            self.measure(pattern, "page", system, number, pattern.repeat)
        elif pattern.name in patterns.SLOW_PAGE:
            self.measure(pattern, "page", system, number)

    def fill_pages(self, system, pattern):
        if pattern.unit == "passes/s":
            return
        try:
            system.ready()
            self.read(patterns.PATTERNS[0], system)
        except Unusable as error:
            self.say(f"{pattern.name}, {system.name}: {error}")

    def cold_round(self, which, all_systems, number):
        for at, pattern in enumerate(which):
            if "cold" not in pattern.states:
                continue
            for system in turn(all_systems, number + at):
                if not system.cold:
                    continue
                if system.name != "wfs" and pattern.name != "read1m":
                    continue
                if system.slow and not self.with_slow:
                    continue
                begin = self.minutes()
                self.cold(pattern, system, number)
                if system.slow:
                    self.slow_minutes += self.minutes() - begin

    def rounds(self, what, one_round, until):
        """As many as the minutes allow, at least one; the slow systems leave first."""
        self.with_slow = True
        for number in range(self.arguments.rounds):
            begin, self.slow_minutes = self.minutes(), 0
            self.say(f"{what}, round {number + 1} of {self.arguments.rounds}")
            one_round(number)
            fast = self.minutes() - begin - self.slow_minutes
            left = until - self.minutes()
            self.with_slow = self.with_slow and number + 1 < SLOW_ROUNDS and \
                fast + self.slow_minutes <= left
            if fast > left and number + 1 < self.arguments.rounds:
                self.say(f"{what}: no time for more than {number + 1} rounds")
                break

    def shaped(self, wfs, curl):
        """A link of 400 Mbit/s, two rounds."""
        pattern = patterns.PATTERNS[0]
        try:
            run("tc", "qdisc", "replace", "dev", "lo", "root", "tbf", "rate", "400mbit",
                "burst", "256kb", "latency", "100ms")
        except Unusable as error:
            self.record(pattern, "cold-400mbit", "wfs", 0, {"failed": str(error)})
            return
        for number in range(2):
            for system in turn([wfs, curl], number):
                self.cold(pattern, system, number, "cold-400mbit")
        run("tc", "qdisc", "del", "dev", "lo", "root")

    def full_check(self, system, data):
        """Every byte, once for each system."""
        if system.name in self.failed or not system.warm:
            return
        try:
            run(READER, "eager", system.path(data), reference(data), timeout=GUARD)
        except Unusable as error:
            self.failed[system.name] = str(error)
            self.say(f"{system.name} gives wrong bytes: {error}")


def turn(things, number):
    """The same in another order: each is first as often as the others."""
    at = number % len(things)
    return things[at:] + things[:at]


def machine_seconds():
    with open("/proc/stat") as stat:
        user, nice, system, _, _, irq, softirq = map(int, stat.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def memory_trouble():
    """How often so far memory was not there at once: reclaim, and folios that were not whole."""
    found = {"reclaims": 0, "compactions": 0, "compactions_failed": 0}
    with open("/proc/vmstat") as file:
        for line in file:
            key, value = line.split()
            if key.startswith("allocstall"):
                found["reclaims"] += int(value)
            elif key == "compact_stall":
                found["compactions"] = int(value)
            elif key == "compact_fail":
                found["compactions_failed"] = int(value)
    return found


def sent():
    """Bytes of objects that nginx sent since its log was emptied."""
    total = 0
    with open(systems.NGINX_LOG) as log:
        for line in log:
            word = line.split()
            if word[0] == "GET" and not word[-1].endswith("/") and "?" not in word[-1]:
                total += int(word[2])
    return total


def resident_bytes(directory):
    files = [entry.path for entry in os.scandir(directory)]
    return sum(int(line) for line in run("fincore", "-nb", "-o", "RES", *files).split())


def start_nginx():
    os.makedirs(TMP, exist_ok=True)
    contents = "".join(
        f"<Contents><Key>{entry.name}</Key><LastModified>2020-01-01T00:00:00.000Z</LastModified>"
        f"<ETag>&quot;{entry.stat().st_size:x}&quot;</ETag><Size>{entry.stat().st_size}</Size>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
        for entry in os.scandir(f"{ORIGIN}/model"))
    listing = ('<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>bench</Name>'
               f"<Prefix></Prefix><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>")
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "nginx.conf.in")) as file:
        text = file.read()
    for key, value in {"run": TMP, "root": ORIGIN, "copy": COPY, "port1": "8080",
                       "port2": "8081", "port3": "8082", "listing": listing}.items():
        text = text.replace(f"@{key}@", value)
    systems.write(f"{TMP}/nginx.conf", text)
    nginx = subprocess.Popen(["nginx", "-c", f"{TMP}/nginx.conf", "-g", "daemon off;"],
                             stdin=subprocess.DEVNULL)
    systems.wait_until(lambda: os.path.exists(f"{TMP}/nginx.pid"), 20, "nginx starts")
    return nginx


def make_files(directory, files):
    run(MAKE_DATA, directory, *[str(word) for item in files.items() for word in item])


def prepare_main(bench):
    os.makedirs(ORIGIN, exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", ORIGIN)
    make_files(f"{ORIGIN}/model", patterns.MODEL)
    os.makedirs(COPY)
    run("cp", "-a", f"{ORIGIN}/model", COPY)
    # nginx lists the first and serves the second: memory holds no file of 2 TiB.
    os.makedirs(f"{ORIGIN}/huge")
    os.makedirs(f"{COPY}/huge")
    for name, size in patterns.HUGE.items():
        with open(f"{COPY}/huge/{name}", "w") as file:
            os.truncate(file.fileno(), size)
        os.utime(f"{COPY}/huge/{name}", (LONG_AGO, LONG_AGO))
    bench.nginx = start_nginx()
    bench.say("the files are made")
    source = systems.JSON + "/"
    return [systems.Wfs(source), systems.WfsNoVerify(source), systems.Xfs(), systems.Xfs4M(),
            systems.Fuse(), systems.Rclone(), systems.S3fs(), systems.Curl(), systems.CurlFile()]


def main_vm(bench):
    arguments = bench.arguments
    which = patterns.select(arguments.only, "main")
    everything = prepare_main(bench)
    wfs, xfs = everything[0], everything[2]
    curl = everything[-2]
    if not any(p.slow for p in which) and not patterns.wanted("copies", arguments.only):
        everything = [s for s in everything if not s.slow]
    for system in everything:
        # It is the same mount as the one before it.
        if not isinstance(system, systems.Xfs4M):
            bench.start(system)
    for system in everything:
        if isinstance(system, systems.Xfs4M):
            system.directory = xfs.directory
    if any("cold" in p.states for p in which):
        bench.rounds("cold", lambda n: bench.cold_round(which, everything, n),
                     arguments.minutes * 0.35)
    if patterns.wanted("shaped", arguments.only):
        bench.shaped(wfs, curl)
    warm = [s for s in everything if s.warm]
    for system in warm:
        if system.name not in bench.failed:
            try:
                for data in sorted({p.data for p in which} - {"huge"} | {"model"}):
                    system.make_warm(data)
            except (Unusable, OSError) as error:
                bench.failed[system.name] = str(error)
                bench.say(f"{system.name} is left out: {error}")
        bench.full_check(system, "model")
    if patterns.wanted("copies", arguments.only):
        copies.count(bench, warm)
    bench.rounds("warm", lambda n: bench.warm_round(which, warm, n), arguments.minutes)
    for system in reversed(everything):
        if not isinstance(system, systems.Xfs4M):
            system.stop()
    bench.nginx.terminate()
    bench.nginx.wait(30)


def small_vm(bench):
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) // 1024
    which = patterns.select(bench.arguments.only, "small")
    # What the kernel took before it counted belongs to the memory, too.
    size = patterns.random_file((memory + 127) // 128 * 128)
    make_files(f"{COPY}/random", size)
    bench.say("the file is made")
    source = f"file://{COPY}"
    everything = [systems.Wfs(source), systems.WfsNoVerify(source), systems.Xfs(),
                  systems.Xfs4M(), systems.Fuse()]
    for system in everything:
        if not isinstance(system, systems.Xfs4M):
            bench.start(system)
    everything[3].directory = everything[2].directory
    # From the source on, not through the page cache of the mount.
    run("wfs", "fetch", source)
    everything[0].settle()
    bench.say("the file is cached")
    bench.rounds("warm", lambda n: bench.warm_round(which, everything, n),
                 bench.arguments.minutes)
    for name in ("rclone", "s3fs"):
        for pattern in which:
            bench.record(pattern, "nvme", name, 0,
                         {"failed": "filling its cache with four times the memory takes too long"})
    for system in reversed(everything):
        if not isinstance(system, systems.Xfs4M):
            system.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vm", choices=["main", "small"])
    parser.add_argument("--only", default="")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    bench = Bench(parser.parse_args())
    systems.write("/out/release", os.uname().release + "\n")
    (main_vm if bench.arguments.vm == "main" else small_vm)(bench)
    bench.say("done")


if __name__ == "__main__":
    main()
