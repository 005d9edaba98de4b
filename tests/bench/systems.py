# SPDX-License-Identifier: MIT
"""The systems that are compared, in a VM: how each is mounted, made cold, and checked.

All read the same bytes: nginx serves /srv/bench, which is in memory, and XFS has a copy of
it on the disk on which the caches of the others are. Each runs as it is installed; what is
passed to it names sources, places, and that its cache be used at all.
"""
import os
import shutil
import subprocess
import time

ORIGIN = "/srv/bench"
DISK = "/var/cache/wfs"
COPY = f"{DISK}/bench"
NGINX_LOG = "/run/bench/access.log"
PEERS = "/in/peers"
JSON, HTML, S3 = (f"http://127.0.0.1:{port}" for port in (8080, 8081, 8082))


class Unusable(Exception):
    """A system that cannot be run here, and why."""


def run(*command, check=True, timeout=300, **more):
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                                stdin=subprocess.DEVNULL, **more)
    except subprocess.TimeoutExpired:
        raise Unusable(f"{' '.join(command)}: not done after {timeout} s") from None
    if check and result.returncode:
        raise Unusable(f"{' '.join(command)}: status {result.returncode}: "
                       f"{(result.stderr or result.stdout).strip()[-400:]}")
    return result.stdout


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def drop_caches():
    os.sync()
    write("/proc/sys/vm/drop_caches", "3")


def mount_of(directory):
    """(source, type, options) of what is mounted there, as the kernel sees it."""
    found = None
    with open("/proc/mounts") as mounts:
        for line in mounts:
            source, target, kind, options, *_ = line.split()
            if target == directory:
                found = source, kind, options
    return found


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Unusable(f"{what}: not within {seconds} s")
        time.sleep(0.05)


class System:
    name = ""
    kind = ""           # of the filesystem, in /proc/mounts
    slow = False        # runs few patterns in few rounds
    cold = False        # has a cold state of its own
    warm = True

    def __init__(self):
        self.directory = f"/mnt/{self.name}"

    def path(self, data):
        return f"{self.directory}/{data}"

    def start(self):
        """Mount it."""

    def ready(self):
        """Before each measurement."""

    def make_cold(self, data):
        """Nothing of the data is in its caches; names may be."""

    def settle(self):
        """After a cold read: what it writes in the background is written."""

    def make_warm(self, data):
        """All of the data is in its cache on NVMe."""

    def stop(self):
        if mount_of(self.directory):
            run("umount", self.directory, check=False)
            if mount_of(self.directory):
                run("umount", "-l", self.directory, check=False)

    def check(self):
        """What would be measured is what we say; returns what /proc/mounts has."""
        found = mount_of(self.directory)
        if not found or found[1] != self.kind:
            raise Unusable(f"{self.directory} is {found}, not {self.kind}")
        return found[1]


class Wfs(System):
    name, kind, cold = "wfs", "wfs", True
    options = ""

    def __init__(self, source):
        super().__init__()
        self.source = source

    def start(self):
        os.makedirs(self.directory, exist_ok=True)
        run("mount", "-t", "wfs", *(["-o", self.options] if self.options else []),
            self.source, self.directory)

    def check(self):
        kind = super().check()
        off = "verify=off" in mount_of(self.directory)[2].split(",")
        if off != (self.options == "verify=off"):
            raise Unusable(f"{self.directory} is mounted with {mount_of(self.directory)[2]}")
        return kind

    def make_cold(self, data):
        self.settle()
        write("/proc/sys/vm/drop_caches", "1")
        run("wfs", "evict", self.path(data))
        # What was learned from other patterns is not cold.
        run("wfs", "profile", "drop", self.path(data))

    def settle(self):
        run("wfs", "sync", self.directory)

    def make_warm(self, data):
        run("wfs", "prefetch", "--wait", self.path(data))
        self.settle()
        for entry in os.scandir(self.path(data)):
            cached = int(os.getxattr(entry.path, "user.wfs.cached"))
            if cached != entry.stat().st_size:
                raise Unusable(f"{entry.path}: {cached} bytes of it are on NVMe")


class WfsNoVerify(Wfs):
    name, cold, options = "wfs-noverify", False, "verify=off"

    def make_warm(self, data):
        pass


class Xfs(System):
    """Read-only by a bind mount, on the disk of all caches; its read-ahead as it comes."""
    name, kind = "xfs", "xfs"
    read_ahead = None

    def __init__(self):
        super().__init__()
        disk = os.path.basename(mount_of(DISK)[0])
        self.knob = f"/sys/block/{disk}/queue/read_ahead_kb"
        with open(self.knob) as file:
            self.default = file.read()

    def start(self):
        os.makedirs(self.directory, exist_ok=True)
        run("mount", "--bind", COPY, self.directory)
        run("mount", "-o", "remount,bind,ro", self.directory)

    def ready(self):
        write(self.knob, self.read_ahead or self.default)


class Xfs4M(Xfs):
    name, read_ahead = "xfs-4m", "4096"


class Fuse(System):
    """libfuse's passthrough_ll over XFS, which keeps pages of files that are open again."""
    name, kind, slow = "fuse", "fuse.passthrough_ll", True

    def __init__(self):
        super().__init__()
        self.daemon = None

    def start(self):
        program = f"{PEERS}/usr/bin/passthrough_ll"
        if not os.path.exists(program):
            raise Unusable("passthrough_ll was not built (vm/peers)")
        os.makedirs(self.directory, exist_ok=True)
        self.daemon = subprocess.Popen(
            [program, "-f", "-o", f"source={COPY},cache=always", self.directory],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        wait_until(self.up, 20, "passthrough_ll mounts")

    def up(self):
        if self.daemon.poll() is not None:
            raise Unusable(f"passthrough_ll: {self.daemon.stderr.read().decode().strip()[-300:]}")
        return mount_of(self.directory)

    def check(self):
        found = mount_of(self.directory)
        if not found or not found[1].startswith("fuse"):
            raise Unusable(f"{self.directory} is {found}, not FUSE")
        return found[1]

    def stop(self):
        super().stop()
        if self.daemon:
            self.daemon.terminate()
            self.daemon.wait(20)


class Cached(Fuse):
    """A FUSE filesystem that fetches, with a cache directory on the same disk."""
    cold = True

    def __init__(self):
        super().__init__()
        self.cache = f"{DISK}/bench-{self.name}"

    def command(self):
        raise NotImplementedError

    def environment(self):
        return dict(os.environ)

    def start(self):
        os.makedirs(self.directory, exist_ok=True)
        os.makedirs(self.cache, exist_ok=True)
        if not os.path.exists(self.command()[0]):
            raise Unusable(f"{self.name} is not there (vm/peers)")
        self.daemon = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                       env=self.environment())
        wait_until(self.up, 60, f"{self.name} mounts")

    def up(self):
        if self.daemon.poll() is not None:
            raise Unusable(f"{self.name}: {self.daemon.stderr.read().decode().strip()[-300:]}")
        return mount_of(self.directory)

    def make_cold(self, data):
        self.stop()
        shutil.rmtree(self.cache, ignore_errors=True)
        self.start()
        run("ls", "-l", self.path(data))

    def make_warm(self, data):
        run("sh", "-c", f"cat {self.path(data)}/* >/dev/null")


class Rclone(Cached):
    name = "rclone"

    def command(self):
        return [f"{PEERS}/usr/bin/rclone", "--config", "/dev/null", "mount", "--read-only",
                "--vfs-cache-mode", "full", "--cache-dir", self.cache, "--http-url", HTML + "/",
                ":http:", self.directory]


class S3fs(Cached):
    name = "s3fs"

    def path(self, data):
        # Its bucket holds the model alone: objects without directories.
        return self.directory

    def environment(self):
        return dict(os.environ, LD_LIBRARY_PATH=f"{PEERS}/usr/lib/x86_64-linux-gnu")

    def command(self):
        return [f"{PEERS}/usr/bin/s3fs", "bench", self.directory, "-f", "-o",
                f"url={S3},use_path_request_style,public_bucket=1,ro,use_cache={self.cache}"]


class Curl(System):
    """No filesystem: the download alone."""
    name, warm, cold = "curl", False, True
    keep = False

    def check(self):
        return "none"

    def path(self, data):
        return f"{DISK}/bench-curl"

    def stop(self):
        shutil.rmtree(self.path(""), ignore_errors=True)

    def make_cold(self, data):
        self.stop()
        os.makedirs(self.path(data))

    def download(self, data):
        """Bytes and seconds, as curl counts them: without starting a process."""
        arguments = []
        for name in sorted(os.listdir(f"{ORIGIN}/{data}")):
            target = f"{self.path(data)}/{name}" if self.keep else "/dev/null"
            arguments += ["-o", target, f"{JSON}/{data}/{name}"]
        lines = run("curl", "-sS", "--fail", "-w", "%{size_download} %{time_total}\\n", *arguments)
        figures = [line.split() for line in lines.splitlines()]
        return sum(int(f[0]) for f in figures), sum(float(f[1]) for f in figures)


class CurlFile(Curl):
    """Into a file on XFS, which is then read."""
    name, keep = "curl-file", True
