# SPDX-License-Identifier: MIT
"""From single measurements to rows: medians, spread, CPU seconds per GB.

A measurement is a dict with "pattern", "state", "system", "unit" and the figures of the
reader (bytes, seconds, cpu, minor, major, ...); "failed" in place of figures says why there
are none. A row stands for all rounds of one pattern, state and system.
"""
import statistics

GB = 1e9
FIGURES = ("origin_bytes", "touched", "resident", "units", "files_bytes", "huge_bytes",
           "reclaims", "compactions", "compactions_failed")


def rate(record):
    """In the unit of the record, per second."""
    if record["unit"] == "MB/s":
        amount = record["bytes"] / 1e6
    elif record["unit"] == "copies/B":
        return record["copied"] / record["bytes"]
    elif record["unit"] == "IOPS":
        amount = record["bytes"] / 4096
    else:
        amount = record.get("passes", 1)
    return amount / record["seconds"]


def row_of(records, kernel):
    good = [r for r in records if "failed" not in r]
    first = records[0]
    row = {"pattern": first["pattern"], "state": first["state"], "system": first["system"],
           "kernel": kernel, "unit": first["unit"], "rounds": len(good),
           "median": None, "spread": None}
    if not good:
        row["why"] = first["failed"]
        return row
    rates = [rate(r) for r in good]
    row["median"] = statistics.median(rates)
    durable = [r["bytes"] / 1e6 / r["durable_seconds"] for r in good if "durable_seconds" in r]
    if durable:
        row["durable"] = statistics.median(durable)
    row["spread"] = (max(rates) - min(rates)) / row["median"] if row["median"] else 0.0
    gigabytes = sum(r["bytes"] for r in good) / GB
    for key in ("cpu", "own", "stored_cpu"):
        values = [r[key] for r in good if key in r]
        # A tick is 10 ms: one round alone says little, their sum does.
        if values and gigabytes:
            row[key + "_per_gb"] = sum(values) / gigabytes
    if any("minor" in r for r in good):
        row["faults"] = statistics.median(
            (r.get("minor", 0) + r.get("major", 0)) / r.get("passes", 1) for r in good)
    for key in FIGURES:
        values = [r[key] for r in good if key in r]
        if values:
            row[key] = statistics.median(values)
    row["bytes"] = statistics.median(r["bytes"] for r in good)
    for key in ("filesystem", "copies_per_byte", "memory_peak", "memory_flat", "memory_setting",
                "p50_ms", "p99_ms", "spread_p99_p50"):
        if key in good[-1]:
            row[key] = good[-1][key]
    return row


def rows_of(records, kernel):
    groups = {}
    for record in records:
        key = record["pattern"], record["state"], record["system"]
        groups.setdefault(key, []).append(record)
    return [row_of(group, kernel) for group in groups.values()]


class Rows:
    """Rows by pattern, state and system; a figure that is not there is None."""

    def __init__(self, rows):
        self.by_key = {(r["pattern"], r["state"], r["system"]): r for r in rows}

    def get(self, pattern, state, system, figure="median"):
        row = self.by_key.get((pattern, state, system))
        return row.get(figure) if row else None

    def why(self, pattern, state, system):
        row = self.by_key.get((pattern, state, system))
        if not row:
            return f"{system} has no row for {pattern}, {state}"
        return row.get("why") or f"{system} has no such figure for {pattern}, {state}"

    def ratio(self, pattern, state, one, other, figure="median"):
        a = self.get(pattern, state, one, figure)
        b = self.get(pattern, state, other, figure)
        return a / b if a is not None and b else None
