# SPDX-License-Identifier: MIT
"""A picture of the rates: bars side by side, on a logarithmic scale, as SVG."""
import math
from xml.sax.saxutils import escape

COLOURS = {
    "wfs": "#1b6ca8", "wfs-noverify": "#79b4dc", "xfs-4m": "#4a4a4a", "xfs": "#9a9a9a",
    "fuse": "#d98032", "rclone": "#c1443c", "s3fs": "#8a5a9e", "curl": "#3d8b5f",
    "curl-file": "#94c9a9",
}
LEFT, TOP, BAR, GAP, WIDTH, LEGEND = 150, 70, 13, 14, 560, 20
STYLE = "font-family='sans-serif' font-size='{}' fill='#222'"


def text(x, y, words, size=12, anchor="start"):
    return (f"<text x='{x:.0f}' y='{y:.0f}' {STYLE.format(size)} text-anchor='{anchor}'>"
            f"{escape(words)}</text>")


def bars(title, unit, groups):
    """groups: [(label, [(system, value)])]; values of None are left out."""
    groups = [(label, [(s, v) for s, v in values if v]) for label, values in groups]
    groups = [(label, values) for label, values in groups if values]
    values = [v for _, group in groups for _, v in group]
    if not values:
        return None
    low = 10 ** math.floor(math.log10(min(values)))
    high = 10 ** math.ceil(math.log10(max(values) * 1.01))
    scale = WIDTH / math.log10(high / low)
    height = TOP + sum(len(group) * BAR + GAP for _, group in groups) + 10
    out = [f"<svg xmlns='http://www.w3.org/2000/svg' width='{LEFT + WIDTH + 90}' "
           f"height='{height}' role='img' aria-label='{escape(title)}'>",
           "<!-- SPDX-License-Identifier: MIT -->",
           f"<rect width='{LEFT + WIDTH + 90}' height='{height}' fill='#fff'/>",
           text(10, 20, f"{title} ({unit}, logarithmic)", 14)]
    used = [s for s in COLOURS if any(s == name for _, group in groups for name, _ in group)]
    x = 10
    for system in used:
        out.append(f"<rect x='{x}' y='{LEGEND + 11}' width='11' height='11' "
                   f"fill='{COLOURS[system]}'/>")
        out.append(text(x + 15, LEGEND + 21, system, 11))
        x += 32 + 7 * len(system)
    tick = low
    while tick <= high * 1.001:
        at = LEFT + scale * math.log10(tick / low)
        out.append(f"<line x1='{at:.0f}' x2='{at:.0f}' y1='{TOP - 8}' y2='{height - 6}' "
                   "stroke='#ddd'/>")
        out.append(text(at, TOP - 12, f"{tick:g}", 10, "middle"))
        tick *= 10
    y = TOP
    for label, group in groups:
        out.append(text(LEFT - 8, y + len(group) * BAR / 2 + 4, label, 12, "end"))
        for system, value in group:
            width = max(scale * math.log10(value / low), 1)
            out.append(f"<rect x='{LEFT}' y='{y}' width='{width:.1f}' height='{BAR - 2}' "
                       f"fill='{COLOURS[system]}'/>")
            out.append(text(LEFT + width + 4, y + BAR - 3, f"{value:.3g}", 10))
            y += BAR
        y += GAP
    out.append("</svg>")
    return "\n".join(out) + "\n"
