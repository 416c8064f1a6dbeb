"""Draw the scored payments to result.svg: time since the last payment and amount, red where the model saw fraud."""

import json
from math import log10
from pathlib import Path

SUSPICIOUS = 0.5


def rows(name):
    files = [file for file in Path("scores", name).rglob("*") if file.is_file()]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


scored, suspicious, refused = map(rows, ("all", "suspicious", "refused"))
right = sum(row["fraud"] for row in suspicious)
there = sum(row["fraud"] for row in scored)
print(f"{len(scored)} payments, {len(suspicious)} suspicious: {right} of {there} frauds; refused: {len(refused)}")
print(refused[0]["error"])

dots = []
for row in sorted(scored, key=lambda row: row["score"]):
    x, y = 60 + 130 * log10(1 + row["minutes"]), 330 - 85 * log10(1 + row["amount"])
    colour, size = ("#e03131", 4) if row["score"] >= SUSPICIOUS else ("#a5b4c4", 2)
    dots.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{size}" fill="{colour}"/>')
ticks = [f'<text x="{60 + 130 * n}" y="352" text-anchor="middle">{10**n:,}</text>' for n in range(5)]
ticks += [f'<text x="52" y="{334 - 85 * n}" text-anchor="end">{10**n:,}</text>' for n in range(4)]
head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 380" font-family="sans-serif" font-size="13">'
axes = (
    '<rect width="680" height="380" fill="#fff"/><path d="M60 20V335H660" fill="none" stroke="#495057"/>'
    '<text x="360" y="372" text-anchor="middle">minutes since the last payment</text><text x="66" y="20">amount</text>'
)
Path("result.svg").write_text("\n".join([head, axes, *ticks, *dots, "</svg>\n"]))
print("Wrote result.svg")
