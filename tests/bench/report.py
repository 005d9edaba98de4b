# SPDX-License-Identifier: MIT
"""Rows and targets as people and programs read them: tables, JSON, reStructuredText, SVG."""
import json

import patterns
import svg
from measure import Rows

SYSTEMS = ["wfs", "wfs-noverify", "xfs", "xfs-4m", "fuse", "rclone", "s3fs", "curl", "curl-file"]
STATES = {"cold": "Cold: nothing local, from HTTP on loopback",
          "nvme": "NVMe: cached, the page cache dropped",
          "page": "Page cache"}
PICTURE = [("read1m", "page", "read(), memory"), ("mmap-scan", "page", "mmap, memory"),
           ("read1m", "nvme", "read(), NVMe"), ("read8", "nvme", "8 streams, NVMe"),
           ("mmap-scan", "nvme", "mmap, NVMe"), ("st-lazy", "nvme", "st-lazy, NVMe"),
           ("read1m", "cold", "read(), cold")]
UNKNOWN = "-"


def number(value):
    if value is None:
        return UNKNOWN
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def ratio(value):
    return UNKNOWN if value is None else f"{value:.2f}"


def names_in(rows, state):
    order = [p.name for p in patterns.PATTERNS]
    found = {r["pattern"] for r in rows if r["state"] == state}
    return [n for n in order if n in found] + sorted(found - set(order))


def systems_in(rows, state):
    found = {r["system"] for r in rows if r["state"] == state}
    return [s for s in SYSTEMS if s in found] + sorted(found - set(SYSTEMS))


def rate_table(rows, table, state):
    """wfs and wfs-noverify as they are, the others as what wfs is times as fast."""
    systems = systems_in(rows, state)
    mine = [s for s in systems if s.startswith("wfs")]
    others = [s for s in systems if s not in mine]
    body = []
    for name in names_in(rows, state):
        units = {r["unit"] for r in rows if (r["pattern"], r["state"]) == (name, state)}
        rounds = table.get(name, state, "wfs", "rounds")
        body.append([name, units.pop(), number(rounds),
                     *[number(table.get(name, state, s)) for s in mine],
                     percent(table.get(name, state, "wfs", "spread")),
                     *[ratio(table.ratio(name, state, "wfs", s)) for s in others]])
    return ["pattern", "unit", "rounds", *mine, "spread", *[f"/{s}" for s in others]], body


def percent(value):
    return UNKNOWN if value is None else f"{100 * value:.0f} %"


def cpu_table(rows, table, state):
    systems = systems_in(rows, state)
    body = []
    for name in names_in(rows, state):
        figures = [table.get(name, state, s, "cpu_per_gb") for s in systems]
        if any(f is not None for f in figures):
            body.append([name, *map(ratio, figures)])
    return ["pattern", *systems], body


def faults_table(table):
    """Faults of one pass; of what is mapped at its end, the share by pages of 2 MiB."""
    body = []
    for name in ("mmap-scan", "st-lazy"):
        for state in ("nvme", "page"):
            figures = [table.get(name, state, s, "faults") for s in SYSTEMS]
            if any(f is not None for f in figures):
                body.append([name, state, *map(number, figures)])
    huge = [table.get("mmap-scan", "page", s, "huge_bytes") for s in SYSTEMS]
    size = table.get("mmap-scan", "page", "wfs", "files_bytes")
    passes = next((p.repeat for p in patterns.PATTERNS if p.name == "mmap-scan"), 1)
    if size and any(h is not None for h in huge):
        body.append(["mmap-scan, huge", "page",
                     *[percent(h and h * passes / size) for h in huge]])
    return ["pattern", "state", *SYSTEMS], body


def copies_table(table):
    body = []
    for name in ("copies-read1m", "copies-mmap-scan"):
        for state in ("nvme", "cold"):
            figures = [table.get(name, state, s) for s in SYSTEMS]
            if any(f is not None for f in figures):
                body.append([name.removeprefix("copies-"), state, *map(ratio, figures)])
    return ["pattern", "state", *SYSTEMS], body


def native_table(rows, table):
    systems = ["wfs", "curl-parallel", "rclone"]
    body = [[name, *[number(table.get(name, "native", s)) for s in systems],
             *[number(table.get(name, "native", s, "durable")) for s in systems[1:]],
             *[ratio(table.get(name, "native", s, "own_per_gb")) for s in systems]]
            for name in names_in(rows, "native") if name.startswith("fetch")]
    return ["pattern", *[f"{s} MB/s" for s in systems],
            *[f"{s}, durable, MB/s" for s in systems[1:]],
            *[f"{s} CPU s/GB" for s in systems]], body


def mirrors_table(table):
    """One slow mirror of three: milliseconds of reads of 256 KiB."""
    names = {"alone": "in turn, no second requests", "hedged": "in turn, second requests",
             "wfs": "as installed"}
    body = [[label, *[ratio(table.get("mirrors", "native", s, f)) for f in ("p50_ms", "p99_ms")]]
            for s, label in names.items() if table.get("mirrors", "native", s) is not None]
    return ["one of three mirrors slow", "p50 ms", "p99 ms"], body


def target_table(results):
    return (["target", "wanted", "measured", "met"],
            [[r["name"], r["target"], r["measured"] or UNKNOWN, "yes" if r["met"] else "no"]
             for r in results])


def short(text):
    """The first line of a reason, for a table."""
    line = text.splitlines()[0]
    return line if len(line) < 100 else line[:97] + "..."


def missing(rows):
    """Rows without a figure, and why."""
    return [[r["pattern"], r["state"], r["system"], short(r["why"])] for r in rows if r.get("why")]


def sums_table(table):
    """What checking cached bytes costs natively."""
    cpu = table.get("sums", "native", "xxh64", "own_per_gb")
    rate_ = table.get("sums", "native", "xxh64")
    return (["checksum", "MB/s on one core", "CPU seconds per GB"],
            [["XXH64 of 64 KiB units", number(rate_), f"{cpu:.3f}"]] if cpu else [])


def all_tables(rows, results):
    table = Rows(rows)
    plain = [r for r in rows if not r["pattern"].startswith("copies-")]
    for state, title in STATES.items():
        yield f"{title}; wfs, and how many times as fast it is as others", rate_table(plain, table, state)
    for state in STATES:
        yield f"CPU seconds of the machine per GB, {state}", cpu_table(plain, table, state)
    yield "Page faults of one pass, and the share that 2 MiB pages map", faults_table(table)
    yield "Copies by the kernel per byte read", copies_table(table)
    yield "Native: fetching without a kernel", native_table(rows, table)
    yield "Native: the checksum", sums_table(table)
    yield "Native: mirrors", mirrors_table(table)
    yield "Targets", target_table(results)


def as_text(title, head, body):
    widths = [max(len(str(line[i])) for line in [head, *body]) for i in range(len(head))]
    lines = [title, ""]
    for line in [head, *body]:
        cells = [str(c).ljust(w) if i == 0 else str(c).rjust(w)
                 for i, (c, w) in enumerate(zip(line, widths))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def as_rst(title, head, body):
    lines = [title, "-" * len(title), "", ".. list-table::", "   :header-rows: 1", ""]
    for line in [head, *body]:
        for i, cell in enumerate(line):
            cell = str(cell).replace("*", "\\*")
            lines.append(f"   {'*' if i == 0 else ' '} - {cell}".rstrip())
    return "\n".join(lines) + "\n"


def printed(rows, results):
    parts = [as_text(title, head, body) for title, (head, body) in all_tables(rows, results) if body]
    gone = missing(rows)
    if gone:
        parts.append(as_text("Not measured", ["pattern", "state", "system", "why"], gone))
    unmet = [r for r in results if r.get("why")]
    if unmet:
        parts.append(as_text("Targets without a figure", ["target", "why"],
                             [[r["name"], short(r["why"])] for r in unmet]))
    met = sum(r["met"] for r in results)
    parts.append(f"{met} of {len(results)} targets are met\n")
    return "\n".join(parts)


def rst(machine, rows, results):
    """What Documentation/performance.rst includes."""
    text = [".. SPDX-License-Identifier: MIT", "", f"Measured on {machine['description']}.", ""]
    text += [as_rst(title, head, body) for title, (head, body) in all_tables(rows, results) if body]
    gone = [[r["name"], short(r["why"])] for r in results if r.get("why")]
    if gone:
        text.append(as_rst("Targets without a figure", ["target", "why"], gone))
    return "\n".join(text)


def picture(rows):
    table = Rows(rows)
    return svg.bars("Reading a model", "MB/s",
                    [(label, [(s, table.get(name, state, s)) for s in SYSTEMS])
                     for name, state, label in PICTURE])


def write_all(machine, rows, results, prefix):
    with open(f"{prefix}.json", "w") as file:
        json.dump({"machine": machine, "rows": rows, "targets": results}, file, indent=1)
        file.write("\n")
    image = picture(rows)
    if image:
        with open(f"{prefix}.svg", "w") as file:
            file.write(image)
    with open(f"{prefix}.rst", "w") as file:
        file.write(rst(machine, rows, results))
