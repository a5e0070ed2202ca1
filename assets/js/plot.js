// The live chart (plotly.js): committed tokens against decode time, for this run and plain decoding.

import { h, typeSize } from "./dom.js";
import { t, words } from "./words.js";
import { store } from "./store.js";

const SLOTS = ["main", "plain"];

export function cssColour(name) {
  return getComputedStyle(document.body).getPropertyValue(name).trim();
}

export class RaceChart {
  constructor() {
    this.box = h("div", { class: "chart", role: "img" });
    this.runs = [];
    this.drawn = [0, 0, 0];
    this.ready = false;
    document.addEventListener("specdemo:theme", () => this.restyle());
    words.listeners.add(() => this.restyle());
  }

  start() {
    if (this.ready || !window.Plotly || !this.box.isConnected || !this.box.clientWidth) return this.ready;
    const line = (name, colour, dash, extra = {}) => ({
      x: [0], y: [0], name, mode: "lines", line: { color: cssColour(colour), width: 2.5, dash, shape: "hv" },
      hovertemplate: "%{y:.0f} · %{x:.2f} s", ...extra,
    });
    const traces = [
      line(t("chart_speculative"), "--accepted-line", "solid"),
      line(t("chart_plain"), "--target-line", "dot"),
      line(t("speedup"), "--bonus-line", "solid", { x: [], y: [], xaxis: "x", yaxis: "y2", hovertemplate: "%{y:.2f}×", line: { color: cssColour("--bonus-line"), width: 2, shape: "linear" } }),
    ];
    window.Plotly.newPlot(this.box, traces, this.layout(), { displayModeBar: false, responsive: true, scrollZoom: false });
    this.ready = true;
    return true;
  }

  layout() {
    const ink = cssColour("--ink-soft");
    const grid = cssColour("--rule");
    const title = (text, more = {}) => ({ text, font: { size: typeSize(12.5), color: ink }, ...more });
    const axis = { color: ink, gridcolor: grid, zeroline: false, linecolor: grid, fixedrange: false, tickfont: { size: typeSize(11.5) } };
    return {
      autosize: true,
      margin: { l: typeSize(44), r: 14, t: 8, b: typeSize(38) },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: typeSize(12.5), color: ink },
      showlegend: false, hovermode: "x", uirevision: "keep",
      xaxis: { ...axis, title: title(t("chart_time"), { standoff: 6 }), rangemode: "tozero", anchor: "y2" },
      yaxis: { ...axis, title: title(t("chart_tokens")), rangemode: "tozero", domain: [0.4, 1] },
      yaxis2: { ...axis, title: title(t("chart_speedup")), rangemode: "tozero", domain: [0, 0.3], nticks: 4 },
      shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, yref: "y2", y0: 1, y1: 1, line: { color: cssColour("--slower"), width: 1, dash: "dash" } }],
      annotations: this.labels(ink),
    };
  }

  // Direct labels at the ends of the lines instead of a legend.
  labels(ink) {
    const names = [t("chart_speculative"), t("chart_plain")];
    const labels = [{ text: t("chart_break_even"), xref: "paper", x: 1, xanchor: "right", yref: "y2", y: 1, yanchor: "bottom", showarrow: false, font: { size: typeSize(11), color: ink } }];
    SLOTS.forEach((slot, i) => {
      const run = store.runs.get(slot);
      const count = store.shown(run);
      if (!count) return;
      const round = run.rounds[count - 1];
      const left = i === 0 && round.end < 0.6 * this.span;
      labels.push({
        x: round.end / 1000, y: round.last, text: names[i], showarrow: false, xanchor: left ? "left" : "right", yanchor: "bottom",
        font: { size: typeSize(12.5), color: cssColour(i ? "--target-ink" : "--accepted-ink") },
      });
    });
    return labels;
  }

  get span() {
    return Math.max(1, ...SLOTS.map((slot) => {
      const run = store.runs.get(slot);
      const count = store.shown(run);
      return count ? run.rounds[count - 1].end : 0;
    }));
  }

  // A redraw costs more than all other views together: at most 10 a second, and on a slow machine so
  // few that they take no more than a tenth of its time.
  update() {
    const wait = (this.next ?? 0) - performance.now();
    if (wait > 0) {
      this.timer ??= setTimeout(() => { this.timer = null; this.update(); }, wait);
      return;
    }
    const first = !this.ready;
    const began = performance.now();
    this.draw();
    const ended = performance.now();
    this.next = ended + (first ? 50 : Math.min(1000, Math.max(100, 9 * (ended - began))));
  }

  draw() {
    this.box.setAttribute("aria-label", t("chart_label"));
    if (!this.start()) return;
    const runs = SLOTS.map((slot) => store.runs.get(slot) ?? null);
    const counts = runs.map((run) => store.shown(run));
    const anew = runs.some((run, i) => run !== this.runs[i] || counts[i] < this.drawn[i]);
    if (anew) this.reset(runs);
    const add = { x: [], y: [], which: [] };
    runs.forEach((run, i) => {
      if (!run || counts[i] <= this.drawn[i]) return;
      const fresh = run.rounds.slice(this.drawn[i], counts[i]);
      this.collect(add, i, fresh.map((r) => r.end / 1000), fresh.map((r) => r.last));
      this.drawn[i] = counts[i];
    });
    this.ratio(add, counts[0]);
    if (!add.which.length) return;
    window.Plotly.extendTraces(this.box, { x: add.x, y: add.y }, add.which);
    const now = performance.now();
    if (now - (this.labelled ?? 0) > 500 || counts.every((c, i) => !runs[i] || c === runs[i].rounds.length)) {
      this.labelled = now;
      window.Plotly.relayout(this.box, { annotations: this.labels(cssColour("--ink-soft")) });
    }
  }

  ratio(add, count) {
    const run = store.main;
    if (!run || !count || store.speedup(count) === null) return;
    const x = [];
    const y = [];
    for (let i = Math.max(this.drawn[2], 2); i < count; i += 1) {
      x.push(run.rounds[i].end / 1000);
      y.push(store.speedup(i + 1));
    }
    this.drawn[2] = count;
    if (x.length) this.collect(add, 2, x, y);
  }

  collect(add, which, x, y) {
    add.x.push(x);
    add.y.push(y);
    add.which.push(which);
  }

  reset(runs) {
    this.runs = runs;
    this.drawn = [0, 0, 0];
    window.Plotly.restyle(this.box, { x: [[0], [0], []], y: [[0], [0], []] }, [0, 1, 2]);
    window.Plotly.relayout(this.box, { annotations: this.labels(cssColour("--ink-soft")) });
  }

  restyle() {
    if (!this.ready) return;
    window.Plotly.purge(this.box);
    this.ready = false;
    this.runs = [];
    store.changed();
  }
}
