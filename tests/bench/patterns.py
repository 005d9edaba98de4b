# SPDX-License-Identifier: MIT
"""What is read, by name: the ways in which programs read weights, and plain rates.

Each pattern is one of tests/reader.c; `reader` without arguments says what it does.
"""
import fnmatch
from dataclasses import dataclass

MIB = 1 << 20

# The names and sizes of the files of a data set; sizes are odd, as those of real ones are.
MODEL = {f"model-{i}.safetensors": size * MIB + 1003 * i
         for i, size in enumerate([88, 24, 24, 24, 24, 24, 24, 24], 1)}
HUGE = {"huge.bin": 2 << 40}


def random_file(memory_mib):
    """For touches that no page cache can answer: four times the memory."""
    return {"big.bin": 4 * memory_mib * MIB}


@dataclass(frozen=True)
class Pattern:
    name: str
    data: str = "model"             # the data set
    states: tuple = ("cold", "nvme", "page")
    options: tuple = ()             # of the reader
    unit: str = "MB/s"              # or "IOPS", "passes/s"
    whole: bool = True              # reads every byte of every file
    slow: bool = False              # slow peers run it, too
    repeat: int = 1                 # passes of one measurement in the page cache
    stamps: bool = True             # the files are made by make_data
    block: str = "4M"               # what "blocks touched" counts
    where: str = "main"             # the VM it runs in


WARM = ("nvme", "page")
# Of the slow peers' patterns, those they run in the page cache, too.
SLOW_PAGE = ("read1m", "mmap-scan", "rand-pread")
PATTERNS = [
    # Plain rates.
    Pattern("read1m", slow=True, repeat=3),
    Pattern("read8", slow=True, repeat=3),
    Pattern("mmap-scan", slow=True, repeat=5),
    Pattern("direct4m", states=("cold", "nvme")),
    Pattern("rand-pread", states=("page",), options=("--count", "500"), unit="IOPS", whole=False,
            slow=True, repeat=8),
    Pattern("rand-mmap", states=("page",), options=("--count", "500"), unit="IOPS", whole=False,
            repeat=8),
    # Loaders.
    Pattern("st-lazy", slow=True, repeat=2),
    Pattern("st-two-region"),
    Pattern("tp8"),
    Pattern("shared-fd"),
    Pattern("vllm-prefetch"),
    Pattern("eager"),
    Pattern("runai"),
    Pattern("fast-st"),
    Pattern("llama-mmap"),
    Pattern("llama-dio", states=("cold", "nvme")),
    Pattern("moe-rows", options=("--count", "200"), whole=False),
    Pattern("tail-first", options=("--count", "1"), whole=False),
    Pattern("gguf-header", options=("--count", "1"), whole=False),
    Pattern("cow", states=WARM),
    Pattern("drop", states=("cold", "nvme")),
    Pattern("wds", states=("cold", "nvme")),
    Pattern("wds-random", states=("cold", "nvme"), options=("--count", "60"), whole=False),
    Pattern("rowgroup", whole=False),
    Pattern("seek", whole=False),
    Pattern("huge-file", data="huge", states=("cold", "nvme"), whole=False, stamps=False),
    Pattern("meta", states=("page",), unit="passes/s", whole=False, repeat=5),
    # A file of four times the memory, in a small VM of its own.
    Pattern("rand4k-pread", data="random", states=("nvme",), options=("--count", "4000"),
            unit="IOPS", whole=False, where="small", slow=True),
    Pattern("rand4k-mmap", data="random", states=("nvme",), options=("--count", "4000"),
            unit="IOPS", whole=False, where="small", slow=True),
]

# The reader's name where ours says more.
READER = {"rand4k-pread": "rand-pread", "rand4k-mmap": "rand-mmap"}

# What is not a pattern of the reader but can be named by ONLY= as well.
OTHERS = {
    "shaped": "read1m, cold, with the link shaped to 400 Mbit/s",
    "copies": "bytes that the kernel copies for each byte read",
    "fetch": "wfs fetch against curl --parallel and rclone, on this machine",
    "mirrors": "one of three mirrors is slow, on this machine",
    "sums": "CPU seconds of the checksum, on this machine",
}


def wanted(name, only):
    """ONLY= holds names or shell patterns, separated by commas; empty means all."""
    return not only or any(fnmatch.fnmatchcase(name, one) for one in only.split(","))


def select(only, where=None):
    return [p for p in PATTERNS if wanted(p.name, only) and where in (None, p.where)]


def check_only(only):
    """The parts of ONLY= that name nothing."""
    names = [p.name for p in PATTERNS] + list(OTHERS)
    return [one for one in (only or "").split(",")
            if one and not any(fnmatch.fnmatchcase(name, one) for name in names)]
