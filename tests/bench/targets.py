# SPDX-License-Identifier: MIT
"""What wfs shall reach, as ratios within one run, and whether it does."""

LINK = 400e6 / 8 / 1e6              # MB/s of the shaped link
WFS, BARE = "wfs", "wfs-noverify"   # verify=on is the default
XFS, XFS4M, FUSE, RCLONE = "xfs", "xfs-4m", "fuse", "rclone"
MIB = 1 << 20


class Evaluation:
    def __init__(self, rows):
        self.rows = rows
        self.results = []

    def judge(self, name, target, measured, met, why=None, text="{:.2f}"):
        """measured None: it was not, and why says for what reason."""
        result = {"name": name, "target": target,
                  "measured": None if measured is None else text.format(measured),
                  "met": bool(measured is not None and met(measured))}
        if measured is None:
            result["why"] = why or "not measured in this run"
        self.results.append(result)

    def ratio(self, what, pattern, state, one, other, least, figure="median"):
        """one / other is at least (or, for what shall be small, at most) a bound."""
        value = self.rows.ratio(pattern, state, one, other, figure)
        why = None
        if value is None:
            missing = one if self.rows.get(pattern, state, one, figure) is None else other
            why = self.rows.why(pattern, state, missing)
        sign, bound = ("<=", -least) if least < 0 else (">=", least)
        self.judge(f"{what}: {one}", f"{sign} {bound:g} x {other}", value,
                   (lambda v: v <= bound) if least < 0 else (lambda v: v >= bound), why)


def page_cache(e):
    for pattern, what in (("read1m", "page-cache read() 1 MiB"),
                          ("rand-pread", "page-cache random 4 KiB")):
        e.ratio(what, pattern, "page", WFS, XFS, 0.95)
        e.ratio(f"{what}, CPU seconds", pattern, "page", WFS, XFS, -1 / 0.95, "cpu_per_gb")
    e.ratio("page-cache mmap scan", "mmap-scan", "page", WFS, XFS4M, 1.0)
    e.ratio("page-cache mmap scan, faults", "mmap-scan", "page", WFS, XFS4M, -0.125, "faults")


def nvme(e):
    for pattern, what, fuse in (("read1m", "NVMe read() 1 MiB, one stream", 6),
                                ("read8", "NVMe read() 1 MiB, eight streams", 6),
                                ("mmap-scan", "NVMe mmap scan", 10),
                                ("st-lazy", "NVMe st-lazy", 10)):
        e.ratio(what, pattern, "nvme", BARE, XFS4M, 1.0)
        e.ratio(what, pattern, "nvme", WFS, XFS4M, 0.8)
        if fuse == 10:
            e.ratio(what, pattern, "nvme", WFS, XFS, 2)
        e.ratio(what, pattern, "nvme", WFS, FUSE, fuse)
    for pattern, what in (("rand4k-pread", "NVMe random 4 KiB pread"),
                          ("rand4k-mmap", "NVMe random 4 KiB mmap")):
        e.ratio(what, pattern, "nvme", BARE, XFS, 0.95)
        e.ratio(what, pattern, "nvme", BARE, FUSE, 1.8)
        e.ratio(what, pattern, "nvme", WFS, FUSE, 1.2)
    e.ratio("NVMe O_DIRECT 4 MiB", "direct4m", "nvme", BARE, XFS, 0.95)
    cpu = "CPU seconds per GB, NVMe read()"
    e.ratio(cpu, "read1m", "nvme", BARE, XFS4M, -1.05, "cpu_per_gb")
    e.ratio(cpu, "read1m", "nvme", WFS, FUSE, -0.15, "cpu_per_gb")


def cold(e):
    rows = e.rows
    one_stream = rows.get("read1m", "cold", WFS)
    e.ratio("cold read(), loopback HTTP", "read1m", "cold", WFS, "curl-file", 1.0)
    e.ratio("cold read(), loopback HTTP", "read1m", "cold", WFS, RCLONE, 8)
    shaped = rows.get("read1m", "cold-400mbit", WFS)
    # What headers and answers leave of it, curl alone shows.
    link = rows.get("read1m", "cold-400mbit", "curl") or LINK
    e.judge("cold read(), 400 Mbit/s: wfs", ">= 0.95 x the link, as curl gets it",
            None if shaped is None else shaped / link, lambda v: v >= 0.95,
            rows.why("read1m", "cold-400mbit", WFS))

    def beside_one_stream(pattern):
        value = rows.get(pattern, "cold", WFS)
        e.judge(f"cold {pattern}: wfs", ">= 0.80 x cold read()",
                value / one_stream if value and one_stream else None, lambda v: v >= 0.8,
                rows.why(pattern if one_stream else "read1m", "cold", WFS))

    beside_one_stream("st-lazy")
    for pattern in ("tp8", "vllm-prefetch", "runai", "shared-fd"):
        beside_one_stream(pattern)
        got = rows.get(pattern, "cold", WFS, "origin_bytes")
        size = rows.get(pattern, "cold", WFS, "files_bytes")
        e.judge(f"cold {pattern}: origin bytes", "= 1.00 x unique bytes",
                got / size if got is not None and size else None, lambda v: 0.995 <= v <= 1.005,
                rows.why(pattern, "cold", WFS))
    for pattern in ("moe-rows", "tail-first", "gguf-header"):
        got = rows.get(pattern, "cold", WFS, "origin_bytes")
        touched = rows.get(pattern, "cold", WFS, "touched")
        e.judge(f"cold {pattern}: origin bytes", "<= blocks touched",
                got / touched if got is not None and touched else None, lambda v: v <= 1.0,
                rows.why(pattern, "cold", WFS))
        resident = rows.get(pattern, "cold", WFS, "resident")
        units = rows.get(pattern, "cold", WFS, "units")
        e.judge(f"cold {pattern}: resident bytes", "<= 64 KiB a unit touched",
                resident / units if resident is not None and units else None, lambda v: v <= 1.0,
                rows.why(pattern, "cold", WFS))


def native(e):
    rows = e.rows
    for pattern, what in (("fetch-http", "wfs fetch, HTTP"), ("fetch-s3", "wfs fetch, S3"),
                          ("fetch-http-50ms", "wfs fetch, HTTP, 50 ms away")):
        mine = rows.get(pattern, "native", WFS)
        others = [v for v in (rows.get(pattern, "native", s) for s in ("curl-parallel", RCLONE)) if v]
        missing = WFS if mine is None else "curl-parallel"
        e.judge(f"native {what}", ">= 0.95 x the best of curl --parallel and rclone",
                mine / max(others) if mine and others else None, lambda v: v >= 0.95,
                rows.why(pattern, "native", missing))
    peak = rows.get("fetch-http", "native", WFS, "memory_peak")
    setting = rows.get("fetch-http", "native", WFS, "memory_setting")
    flat = rows.get("fetch-http", "native", WFS, "memory_flat")
    e.judge("helper memory at full rate, of buffer_memory", "<= 1 (and 64 MiB)",
            peak / (setting + 64 * MIB) if peak and setting else None, lambda v: v <= 1.0,
            rows.why("fetch-http", "native", WFS))
    e.judge("helper memory at full rate, last third by first", "<= 1.1", flat,
            lambda v: v <= 1.1, rows.why("fetch-http", "native", WFS))
    without = rows.get("mirrors", "native", "alone", "spread_p99_p50")
    for system, what in (("hedged", "in turn, second requests"), (WFS, "as installed")):
        distance = rows.get("mirrors", "native", system, "spread_p99_p50")
        e.judge(f"one of three mirrors slow, p99 to p50, {what}: cut by", ">= 91 %",
                100 * (1 - distance / without) if distance is not None and without else None,
                lambda v: v >= 91, rows.why("mirrors", "native", system), "{:.1f} %")


def evaluate(rows):
    """All targets in their order, as dicts of name, target, measured, met (and why not)."""
    e = Evaluation(rows)
    for part in (page_cache, nvme, cold, native):
        part(e)
    return e.results
