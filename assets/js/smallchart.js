// The race chart without plotly.js, for exported pages: the same lines, drawn by hand.

import { h } from "./dom.js";
import { t } from "./words.js";
import { store } from "./store.js";
import { player } from "./player.js";
import { plot } from "./svgplot.js";

export class SmallChart {
  constructor() {
    this.box = h("div", { class: "chart small" });
    this.last = "";
  }

  points(run, count) {
    return [[0, 0], ...run.rounds.slice(0, count).map((round) => [round.end / 1000, round.last])];
  }

  update() {
    const { main, plain } = store;
    if (!main) return;
    const counts = [store.shown(main), store.shown(plain)];
    const now = performance.now();
    if (player.playing && now - (this.at ?? 0) < 100) return; // ten times a second is enough for a line
    const state = `${main.uid} ${counts} ${t("chart_plain")}`;
    if (state === this.last) return;
    this.last = state;
    this.at = now;
    const span = Math.max(main.time, plain?.time ?? 0) / 1000 || 1;
    const most = Math.max(main.tokens.length, plain?.tokens.length ?? 0) || 1;
    const items = [];
    if (plain) items.push({ kind: "line", step: true, points: this.points(plain, counts[1]), colour: "--target-line", dash: "2 4", name: t("chart_plain"), ink: "--target-ink" });
    items.push({ kind: "line", step: true, points: this.points(main, counts[0]), colour: "--accepted-line", name: t("chart_speculative"), ink: "--accepted-ink", anchor: counts[0] ? "end" : "start" });
    this.box.replaceChildren(plot({
      width: 460, height: 300, label: t("chart_label"),
      x: { min: 0, max: span, label: t("chart_time") },
      y: { min: 0, max: most * 1.1, label: t("chart_tokens") },
      items,
    }));
  }
}
