# SPDX-License-Identifier: MIT
"""The part of the benchmark that needs no kernel of ours: fetching, on this machine.

`wfsd --no-kernel` with `wfs fetch`, `curl --parallel` and `rclone copy` bring the same files
from the same servers into a directory of the same filesystem, in turns. And what the
checksum costs here.
"""
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request

import patterns

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
HERE = os.path.dirname(os.path.abspath(__file__))
FILES = {f"part-{i}.bin": (64 << 20) + 17 * i for i in range(8)}
JSON_PORT, HTML_PORT, S3_PORT, FAR_JSON, FAR_HTML = 18190, 18191, 18192, 18193, 18194
METRICS_PORT = 18195
DELAY_MS = 50
ROUNDS = 5
TICK = os.sysconf("SC_CLK_TCK")
CEPH = f"{TOP}/tests/ceph"


class Unusable(Exception):
    """What cannot be measured here, and why."""


def say(text):
    """A step of progress; whoever calls measure may set another."""
    print(f"native: {text}", file=sys.stderr, flush=True)


def without_credentials():
    """What others would take from this machine's environment for S3 is not theirs."""
    return {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}


def run(command, **more):
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                            timeout=600, **more)
    if result.returncode:
        raise Unusable(f"{command[0]}: status {result.returncode}: "
                       f"{(result.stderr or result.stdout).strip()[-300:]}")
    return result.stdout


def answers(port):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Unusable(f"{what}: not within {seconds} s")
        time.sleep(0.05)


@contextlib.contextmanager
def program(command, **more):
    """A server while something is measured."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **more)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def process_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def children_seconds():
    times = os.times()
    return times.children_user + times.children_system


class Memory(threading.Thread):
    """Resident bytes of a process, looked at all the time."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.over, self.samples = pid, threading.Event(), []

    def run(self):
        page = os.sysconf("SC_PAGE_SIZE")
        while not self.over.wait(0.01):
            with contextlib.suppress(OSError):
                with open(f"/proc/{self.pid}/statm") as file:
                    self.samples.append(int(file.read().split()[1]) * page)

    def figures(self):
        self.over.set()
        self.join()
        third = max(len(self.samples) // 3, 1)
        return max(self.samples), max(self.samples[-third:]) / max(self.samples[:third])


class Fetch:
    """One server, three ways of fetching from it."""

    def __init__(self, name, work, records):
        self.name, self.work, self.records = name, work, records
        self.size = sum(FILES.values())

    def record(self, system, number, figures):
        self.records.append(dict(figures, pattern=self.name, state="native", system=system,
                                 round=number, unit="MB/s"))

    def into(self):
        place = f"{self.work}/into"
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place)
        return place

    def check(self, place):
        """Sizes now; bytes are compared once."""
        for name, size in FILES.items():
            if os.path.getsize(f"{place}/{name}") != size:
                raise Unusable(f"{name} came with {os.path.getsize(f'{place}/{name}')} bytes")

    def copy(self, place, command, **more):
        """Seconds until it ends, and until what it wrote is durable."""
        before, begin = children_seconds(), time.monotonic()
        run(command, **more)
        figures = {"seconds": time.monotonic() - begin, "own": children_seconds() - before}
        run(["sync", "-f", place])
        figures["durable_seconds"] = time.monotonic() - begin
        self.check(place)
        return figures

    def curl(self, base):
        place = self.into()
        arguments = [word for name in FILES for word in ("-o", f"{place}/{name}", base + name)]
        return self.copy(place, ["curl", "-sS", "--fail", "--parallel", *arguments])

    def rclone(self, peers, arguments, environment):
        place = self.into()
        return self.copy(place, [f"{peers}/usr/bin/rclone", "--config", "/dev/null", "copy",
                                 *arguments, place],
                         env=dict(without_credentials(), **environment))

    def wfs(self, daemon, source):
        run([f"{TOP}/build/helper/wfs", "evict", source], env=daemon.environment)
        memory = Memory(daemon.pid)
        memory.start()
        before, begin = process_seconds(daemon.pid) + children_seconds(), time.monotonic()
        out = run([f"{TOP}/build/helper/wfs", "fetch", "--json", source], env=daemon.environment)
        seconds = time.monotonic() - begin
        own = process_seconds(daemon.pid) + children_seconds() - before
        peak, flat = memory.figures()
        fetched = json.loads(out.splitlines()[-1])["fetched"]
        if fetched != self.size:
            raise Unusable(f"wfs fetch brought {fetched} of {self.size} bytes")
        return {"seconds": seconds, "durable_seconds": seconds, "own": own, "memory_peak": peak,
                "memory_flat": flat, "memory_setting": 512 << 20}

    def rounds(self, ways):
        for number in range(ROUNDS):
            order = list(ways)
            at = number % len(order)
            for system in order[at:] + order[:at]:
                try:
                    figures = dict(ways[system](), bytes=self.size)
                except (Unusable, OSError, subprocess.TimeoutExpired) as error:
                    say(f"{self.name}, {system}: {error}")
                    self.record(system, number, {"failed": str(error)})
                    continue
                self.record(system, number, figures)
                say(f"round {number + 1}, {self.name}: {system} "
                    f"{self.size / figures['seconds'] / 1e6:.0f} MB/s")


@contextlib.contextmanager
def daemon(work, *arguments):
    cache = f"{work}/cache"
    shutil.rmtree(cache, ignore_errors=True)
    environment = dict(os.environ, WFS_SOCKET=f"{work}/wfsd.sock",
                       AWS_EC2_METADATA_DISABLED="true")
    with open(f"{work}/wfsd.log", "a") as log, program(
            [f"{TOP}/build/helper/wfsd", "--no-kernel", "--foreground", "--cache-dir", cache,
             "--control-socket", environment["WFS_SOCKET"],
             "--metrics-listen", f"127.0.0.1:{METRICS_PORT}", *arguments],
            stdout=log, stderr=log, env=environment) as process:
        process.environment = environment
        wait_until(lambda: os.path.exists(environment["WFS_SOCKET"]), 30, "wfsd starts")
        yield process
    shutil.rmtree(cache, ignore_errors=True)


def start_nginx(work):
    with open(f"{HERE}/nginx.conf.in") as file:
        text = file.read()
    for key, value in {"run": work, "root": f"{work}/root", "copy": f"{work}/root",
                       "port1": str(JSON_PORT), "port2": str(HTML_PORT), "port3": str(S3_PORT),
                       "listing": ""}.items():
        text = text.replace(f"@{key}@", value)
    with open(f"{work}/nginx.conf", "w") as file:
        file.write(text)
    return program(["nginx", "-c", f"{work}/nginx.conf", "-g", "daemon off;"])


def http(work, peers, records):
    near = Fetch("fetch-http", work, records)
    far = Fetch(f"fetch-http-{DELAY_MS}ms", work, records)

    def delayed(port, server):
        return program([sys.executable, f"{HERE}/delay.py", str(port), str(server), str(DELAY_MS)])

    with start_nginx(work), delayed(FAR_JSON, JSON_PORT), delayed(FAR_HTML, HTML_PORT), \
            daemon(work) as wfsd:
        for port in (JSON_PORT, HTML_PORT, FAR_JSON, FAR_HTML):
            wait_until(lambda port=port: answers(port), 30, f"port {port} answers")
        for fetch, json_port, html_port in ((near, JSON_PORT, HTML_PORT),
                                            (far, FAR_JSON, FAR_HTML)):
            base, html = f"http://127.0.0.1:{json_port}/", f"http://127.0.0.1:{html_port}/"
            fetch.rounds({
                "wfs": lambda f=fetch, b=base: f.wfs(wfsd, b),
                "curl-parallel": lambda f=fetch, b=base: f.curl(b),
                "rclone": lambda f=fetch, h=html: f.rclone(peers, ["--http-url", h, ":http:"], {}),
            })
        # Bytes, once: wfs fetch checks its own sums, the copies are compared.
        run([f"{TOP}/build/helper/wfs", "fetch", "--verify", f"http://127.0.0.1:{JSON_PORT}/"],
            env=wfsd.environment)
        run(["diff", "-rq", f"{work}/root", f"{work}/into"])


def s3(work, peers, records):
    fetch = Fetch("fetch-s3", work, records)
    own = subprocess.run([CEPH, "running"], check=False).returncode != 0
    if own and answers(7480):
        raise Unusable("another server has port 7480")
    try:
        if own:
            run([CEPH, "up"])
        with_s3(fetch, work, peers)
    finally:
        if own:
            subprocess.run([CEPH, "down"], check=False)


def with_s3(fetch, work, peers):
    variables = dict(line.split("=", 1) for line in run([CEPH, "env"]).splitlines())
    endpoint, key, secret = (variables[f"WFS_S3_{name}"] for name in
                             ("ENDPOINT_HOST", "KEY", "SECRET"))
    environment = dict(os.environ, WFS_S3_ENDPOINT=endpoint, WFS_S3_KEY=key, WFS_S3_SECRET=secret)
    bucket = f"bench-{os.getpid()}"

    def client(*arguments):
        run([sys.executable, f"{TOP}/tests/s3.py", *arguments], env=environment)

    client("mkbucket", bucket)
    try:
        # curl signs nothing.
        client("public", bucket)
        for name in FILES:
            client("put", f"{work}/root/{name}", f"{bucket}/{name}")
        conf = f"{work}/wfsd.conf"
        with open(conf, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(f"[source s3://{bucket}]\nendpoint = {endpoint}\naccess_key = {key}\n"
                       f"secret_key = {secret}\n")
        with daemon(work, "--config", conf) as wfsd:
            fetch.rounds({
                "wfs": lambda: fetch.wfs(wfsd, f"s3://{bucket}"),
                "curl-parallel": lambda: fetch.curl(f"{endpoint}/{bucket}/"),
                "rclone": lambda: fetch.rclone(peers, [f":s3:{bucket}"], {
                    "RCLONE_S3_PROVIDER": "Ceph", "RCLONE_S3_ENDPOINT": endpoint,
                    "RCLONE_S3_ACCESS_KEY_ID": key, "RCLONE_S3_SECRET_ACCESS_KEY": secret}),
            })
    finally:
        client("rmbucket", bucket)


def sums(work, records):
    """CPU seconds of XXH64 over 64 KiB units, the check of cached bytes."""
    file = f"{work}/root/{next(iter(FILES))}"
    for number in range(3):
        line = run([f"{TOP}/build/tests/reader", "sums", file, file, "--measure", "--repeat", "8"])
        figures = dict(word.split("=") for word in line.split() if "=" in word)
        records.append({"pattern": "sums", "state": "native", "system": "xxh64", "round": number,
                        "unit": "MB/s", "bytes": float(figures["bytes"]),
                        "seconds": float(figures["ns"]) / 1e9, "own": float(figures["own"])})


def slow_mirror(records):
    """What tests/bench/mirror says of one slow mirror of three."""
    names = {"in turn, no second requests": "alone", "in turn, second requests": "hedged",
             "as installed": "wfs"}
    pattern = re.compile(r"  (\S.*?) +p50 +([\d.]+) ms +p99 +([\d.]+) ms")
    out = run(["bash", f"{HERE}/mirror"])
    for line in out.split("3 of 3 mirrors")[0].splitlines():
        found = pattern.match(line)
        if not found or found.group(1) not in names:
            continue
        p50, p99 = float(found.group(2)), float(found.group(3))
        records.append({"pattern": "mirrors", "state": "native", "system": names[found.group(1)],
                        "round": 0, "unit": "MB/s", "bytes": 256 << 10, "seconds": p50 / 1e3,
                        "p50_ms": p50, "p99_ms": p99, "spread_p99_p50": p99 - p50})
        say(f"mirrors, {found.group(1)}: p50 {p50} ms, p99 {p99} ms")


def failed(records, pattern, system, why):
    records.append({"pattern": pattern, "state": "native", "system": system, "round": 0,
                    "unit": "MB/s", "failed": why})


def measure(work, peers, only, progress=None):
    """All records of this part."""
    global say
    say = progress or say
    records = []
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(f"{work}/root")
    run([f"{TOP}/build/tests/make_data", f"{work}/root",
         *[str(word) for item in FILES.items() for word in item]])
    if patterns.wanted("sums", only):
        sums(work, records)
    if patterns.wanted("fetch", only):
        for pattern, part in (("fetch-http", http), ("fetch-s3", s3)):
            try:
                part(work, peers, records)
            except (Unusable, OSError, subprocess.TimeoutExpired) as error:
                say(f"{pattern}: {error}")
                for system in ("wfs", "curl-parallel", "rclone"):
                    failed(records, pattern, system, str(error))
    if patterns.wanted("mirrors", only):
        try:
            slow_mirror(records)
        except (Unusable, OSError, subprocess.TimeoutExpired) as error:
            say(f"mirrors: {error}")
            failed(records, "mirrors", "hedged", str(error))
    shutil.rmtree(work, ignore_errors=True)
    return records
