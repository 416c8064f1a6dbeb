import { Chart } from "./chart.js";
import { byId, fill, make, number, setText, table } from "./dom.js";
import { quantile, RANGES } from "./history.js";
import { badge } from "./models.js";

/** The charts of a model, and the tables of its versions and of its failures. */
export class Figures {
  #range = "minutes";
  #version = "";
  #shown = null;

  constructor() {
    const hover = (time) => this.charts.forEach((chart) => chart.hover(time));
    const one = (key, tone) => [{ key, label: "", tone }];
    this.charts = [
      new Chart("Throughput", "/s", one("throughput"), hover),
      new Chart("Latency", "ms", [{ key: "p50", label: "p50" }, { key: "p99", label: "p99", tone: "soft" }], hover),
      new Chart("Failures", "/s", one("failed", "bad"), hover),
      new Chart("Queue", "waiting", one("queue"), hover),
      new Chart("Oldest waiting", "s", one("oldest"), hover),
      new Chart("Batch size", "requests", one("batch"), hover),
    ];
    byId("charts").append(...this.charts.map((chart) => chart.element));
    byId("range").addEventListener("change", (event) => {
      this.#range = event.target.value;
      this.#draw();
    });
    byId("versions-choice").addEventListener("change", (event) => {
      this.#version = event.target.value;
      this.#draw();
    });
  }

  /** Show the figures of a model, with marks at times; a `version` is shown alone until another one is chosen. */
  show(history, bounds, served, marks, version) {
    this.#shown = { history, bounds, served, marks };
    if (version !== undefined) this.#version = version;
    this.#draw();
  }

  #draw() {
    if (!this.#shown) return;
    const { history, bounds, served, marks } = this.#shown;
    const range = RANGES[this.#range];
    const versions = history.versions();
    if (!versions.includes(this.#version)) this.#version = "";
    this.#showChoice(versions);
    const points = history.points(range, bounds, this.#version);
    this.charts.forEach((chart) => chart.show(points, range.span, marks));
    const end = points.at(-1)?.time ?? 0;
    byId("marks-note").hidden = !marks.some((time) => time > end - range.span && time <= end);
    this.#showVersions(history, bounds, range, versions, served);
    this.#showFailures(history, range);
  }

  #showChoice(versions) {
    const choice = byId("versions-choice");
    choice.hidden = versions.length < 2;
    fill(choice, versions.join("\n"), () => [make("legend", { class: "hidden" }, "Version"), ...["", ...versions].map((version) =>
      make("label", {}, make("input", { type: "radio", name: "version", value: version }), make("span", {}, version ? `v${version}` : "All")))]);
    const chosen = choice.querySelector(`[value="${CSS.escape(this.#version)}"]`);
    if (chosen) chosen.checked = true;
  }

  #showVersions(history, bounds, range, versions, served) {
    const latency = (counts, share) => {
      const value = quantile(counts, bounds, share);
      return value === null ? "–" : `${number(value)} ms`;
    };
    const rows = versions.map((version) => {
      const did = history.totals(range, version);
      const all = history.newest.versions[version] ?? { requests: 0, failures: 0 };
      return [version, served.get(version) ?? "ended", number(all.requests), number(all.failures),
        did.seconds ? `${number(did.requests / did.seconds)}/s` : "–", latency(did.latency, 0.5), latency(did.latency, 0.99)];
    });
    const titles = ["Version", "State", "Answered ", "Failed ", "Rate ", "p50 ", "p99 "];
    fill(byId("versions"), JSON.stringify(rows), () => [rows.length
      ? table("Versions", titles, rows.map(([version, state, ...rest]) => [version, badge(state), ...rest]))
      : make("p", { class: "hint" }, "No slot has counted anything in the last hour.")]);
    setText(byId("versions-note"), `Answered and failed in all; rate and latency of the last ${range.text}.`);
  }

  #showFailures(history, range) {
    const { codes, failures, requests } = history.totals(range, this.#version);
    const percent = (count) => (count / requests).toLocaleString("en", { style: "percent", maximumSignificantDigits: 2 });
    const rows = Object.entries(codes).filter(([, count]) => count).sort(([, one], [, other]) => other - one);
    setText(byId("failures-note"), `Records of the last ${range.text}, and their share of all.`);
    fill(byId("failures"), JSON.stringify(rows), () => [rows.length
      ? make("ul", { class: "codes", "aria-label": "Failures by code" }, ...rows.map(([code, count]) => {
        const bar = make("span", { class: "bar bad" });
        bar.style.setProperty("--share", count / failures);
        return make("li", {}, make("code", {}, code), make("span", { class: "track", "aria-hidden": "true" }, bar),
          make("span", {}, number(count), make("small", {}, ` · ${percent(count)}`)));
      }))
      : make("p", { class: "hint" }, "None.")]);
  }
}
