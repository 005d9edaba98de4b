#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The benchmark's own arithmetic, from made-up measurements: medians, ratios, targets and
what is printed of them. Prints TAP."""
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

import measure
import patterns
import report
import targets

results = []


def is_(got, wanted, what):
    results.append(got == wanted)
    print(f"{'ok' if got == wanted else 'not ok'} {len(results)} - {what}")
    if got != wanted:
        print(f"# got    {got!r}\n# wanted {wanted!r}")


def record(pattern, state, system, rate, number=0, **more):
    """One measurement of so many MB/s."""
    return dict({"pattern": pattern, "state": state, "system": system, "unit": "MB/s",
                 "round": number, "bytes": 1e9, "seconds": 1e3 / rate, "cpu": 0.5,
                 "minor": 100, "major": 0, "passes": 1}, **more)


def target(records, name):
    found = [r for r in targets.evaluate(measure.Rows(measure.rows_of(records, "6.12")))
             if r["name"] == name]
    return found[0] if found else None


def check_rows():
    rows = measure.rows_of([record("read1m", "nvme", "wfs", r, cpu=c)
                            for r, c in ((100, 0.4), (300, 0.5), (200, 0.6))], "6.12")
    is_(len(rows), 1, "rounds of one pattern, state and system make one row")
    is_(round(rows[0]["median"]), 200, "the median")
    is_(round(rows[0]["spread"], 2), 1.0, "the spread is that of all rounds, by the median")
    is_(round(rows[0]["cpu_per_gb"], 3), 0.5, "CPU seconds per GB are those of all rounds")
    is_(rows[0]["rounds"], 3, "rounds are counted")
    rows = measure.rows_of([record("rand-pread", "page", "wfs", 1, unit="IOPS", bytes=4096 * 500,
                                   seconds=2)], "6.12")
    is_(rows[0]["median"], 250, "touches per second")
    rows = measure.rows_of([record("fetch-http", "native", "rclone", r, durable_seconds=1e3 / r * s)
                            for r, s in ((100, 2), (300, 4), (200, 2))], "6.12")
    is_((round(rows[0]["median"]), round(rows[0]["durable"])), (200, 75),
        "beside the rate, the one until all is durable")
    rows = measure.rows_of([{"pattern": "read1m", "state": "cold", "system": "s3fs",
                             "unit": "MB/s", "failed": "no server"}], "6.12")
    is_((rows[0]["median"], rows[0]["why"]), (None, "no server"),
        "what could not be measured says why")


def check_targets():
    fast = [record("read1m", "page", "wfs", 96), record("read1m", "page", "xfs", 100)]
    slow = [record("read1m", "page", "wfs", 94), record("read1m", "page", "xfs", 100)]
    name = "page-cache read() 1 MiB: wfs"
    is_((target(fast, name)["measured"], target(fast, name)["met"]), ("0.96", True), "a ratio that is met")
    is_((target(slow, name)["measured"], target(slow, name)["met"]), ("0.94", False), "and one that is not")
    name = "page-cache mmap scan, faults: wfs"
    few = [record("mmap-scan", "page", "wfs", 9, minor=10), record("mmap-scan", "page", "xfs-4m", 9)]
    many = [record("mmap-scan", "page", "wfs", 9, minor=13), record("mmap-scan", "page", "xfs-4m", 9)]
    is_((target(few, name)["met"], target(many, name)["met"]), (True, False),
        "what shall be small has an upper bound")
    none = target(fast + [{"pattern": "read1m", "state": "nvme", "system": "fuse", "unit": "MB/s",
                           "failed": "no FUSE"}, record("read1m", "nvme", "wfs", 5)],
                  "NVMe read() 1 MiB, one stream: wfs")
    is_((none["measured"], none["met"]), (None, False), "without a figure it is not met")
    is_(bool(none["why"]), True, "and says why")
    cold = [record("read1m", "cold", "wfs", 100), record("tp8", "cold", "wfs", 85, origin_bytes=100,
                                                         files_bytes=100)]
    is_(target(cold, "cold tp8: wfs")["met"], True, "cold patterns are compared with a cold read")
    is_(target(cold, "cold tp8: origin bytes")["measured"], "1.00", "bytes of the origin")
    cold[1]["origin_bytes"] = 101
    is_(target(cold, "cold tp8: origin bytes")["met"], False, "that it sent more than once")
    shaped = [record("read1m", "cold-400mbit", "wfs", 48)]
    is_(target(shaped, "cold read(), 400 Mbit/s: wfs")["measured"], "0.96", "by the link's rate")
    names = [r["name"] + r["target"] for r in targets.evaluate(measure.Rows([]))]
    is_(len(set(names)), len(names), "no target stands twice")


def check_report():
    records = [record(p, s, system, 100 * (i + 1)) for i, system in enumerate(report.SYSTEMS)
               for p, s, _ in report.PICTURE]
    rows = measure.rows_of(records, "6.12")
    found = targets.evaluate(measure.Rows(rows))
    text = report.printed(rows, found)
    is_("targets are met" in text and "0.33" in text, True, "the tables have ratios")
    with tempfile.TemporaryDirectory() as place:
        machine = {"description": "a machine"}
        report.write_all(machine, rows, found, f"{place}/bench")
        with open(f"{place}/bench.json") as file:
            written = json.load(file)
        is_(sorted(written), ["machine", "rows", "targets"], "bench.json has its three parts")
        is_(all({"pattern", "state", "system", "kernel", "median", "spread", "unit"} <= set(r)
                for r in written["rows"]), True, "its rows have all fields")
        is_(all({"name", "target", "measured", "met"} <= set(r) for r in written["targets"]), True,
            "and so have its targets")
        is_(ElementTree.parse(f"{place}/bench.svg").getroot().tag.endswith("svg"), True,
            "the picture is XML")
        with open(f"{place}/bench.rst") as file:
            is_(file.read().count(".. list-table::") >= 4, True, "the tables for the documentation")


def check_patterns():
    is_(patterns.check_only("st-*,tp8,nonsense"), ["nonsense"], "ONLY= that names nothing")
    is_([p.name for p in patterns.select("read?m,tp8")], ["read1m", "tp8"], "ONLY= selects")
    usage = subprocess.run([sys.argv[1]], capture_output=True, text=True, check=False).stderr
    known = {line.split()[0] for line in usage.splitlines() if line.startswith("  ")}
    is_([p.name for p in patterns.PATTERNS if patterns.READER.get(p.name, p.name) not in known], [],
        "the reader knows all patterns")


def check_delay(port=18196):
    """The proxy delays by what it is told, and changes nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = os.path.dirname(os.path.abspath(__file__))
        proxy = subprocess.Popen([sys.executable, "-B", f"{here}/delay.py", str(port),
                                  str(server.getsockname()[1]), "100"])
        try:
            for _ in range(200):
                try:
                    client = socket.create_connection(("127.0.0.1", port))
                    break
                except OSError:
                    time.sleep(0.05)
            other, _ = server.accept()
            body = os.urandom(3 << 20)
            begin = time.monotonic()
            client.sendall(b"x")
            other.recv(1)
            other.sendall(body)
            other.close()
            got = b""
            while piece := client.recv(1 << 20):
                got += piece
            took = time.monotonic() - begin
            client.close()
        finally:
            proxy.terminate()
            proxy.wait()
    is_(got == body, True, "all bytes come through the proxy")
    is_(0.19 < took, True, "a handshake and a round trip later")


for check in (check_rows, check_targets, check_report, check_patterns, check_delay):
    check()
print(f"1..{len(results)}")
sys.exit(not all(results))
