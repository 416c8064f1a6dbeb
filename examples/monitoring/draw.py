"""Draw the panels of the dashboard to result.svg, as they are in monitoring/grafana/dashboard.json."""

import json
from html import escape
from pathlib import Path

WIDTH, HEIGHT, GAP = 30, 11, 4  # pixels of a unit of Grafana's grid, and between panels

panels = json.loads(Path("../../monitoring/grafana/dashboard.json").read_text("utf8"))["panels"]
boxes, bottom = [], 0
for panel in panels:
    place = panel["gridPos"]
    x, y = WIDTH * place["x"] + GAP, HEIGHT * place["y"] + GAP
    width, height = WIDTH * place["w"] - GAP, HEIGHT * place["h"] - GAP
    bottom = max(bottom, y + height + GAP)
    boxes.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="#fff" stroke="#c3ccd6"/>')
    boxes.append(f'<text x="{x + 10}" y="{y + 20}">{escape(panel["title"])}</text>')
head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {24 * WIDTH + GAP} {bottom}" font-family="sans-serif"'
ground = '<rect width="100%" height="100%" fill="#eef1f5"/>'
Path("result.svg").write_text("\n".join([f'{head} font-size="12">', ground, *boxes, "</svg>\n"]))
