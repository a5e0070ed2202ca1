// "When a server fills": the same prompts, more and more of them at once, on a serving engine.

import { h, save, setText } from "./dom.js";
import { t, number, times, words } from "./words.js";
import { store } from "./store.js";
import { plot } from "./svgplot.js";
import { Voice } from "./status.js";

const COLUMNS = [
  ["load_at_once", (row) => String(row.concurrency)],
  ["load_rate", (row) => number(row.tokens_per_second, 1)],
  ["load_plain_rate", (row) => number(row.plain_tokens_per_second, 1)],
  ["compare_speedup", (row) => times(row.speedup)],
  ["load_each", (row) => number(row.each_tokens_per_second, 1)],
  ["load_first", (row) => number(row.first_token_ms, 0)],
  ["compare_tau", (row) => number(row.mean_accepted_length, 2)],
  ["load_failed", (row) => String(row.failed)],
];

export class Load {
  constructor(root) {
    root.classList.add("load", "compare");
    this.voice = new Voice("load");
    this.title = h("h2");
    this.about = h("p", { class: "sd-prose" });
    this.progress = h("progress", { max: 1, value: 0, hidden: true });
    this.table = h("div", { class: "table-box", tabindex: "0" });
    this.checks = h("p", { class: "sd-prose" });
    this.chart = h("div", { class: "picture" });
    this.json = h("button", { type: "button", class: "quiet", onclick: () => save("specdemo-server-load.json", "application/json", `${JSON.stringify(store.data.get("load"), null, 1)}\n`) });
    root.append(this.title, this.about, this.voice.box, this.progress, this.table, this.checks, this.chart, h("div", { class: "controls" }, this.json));
  }

  update() {
    this.voice.update();
    setText(this.title, t("load_title"));
    setText(this.about, t("load_about"));
    setText(this.json, t("load_save"));
    const data = store.data.get("load");
    this.json.disabled = !data?.rows.length;
    if (data === this.data && words.lang === this.lang) return;
    [this.data, this.lang] = [data, words.lang];
    this.progress.hidden = !data || data.rows.length === data.of;
    this.progress.setAttribute("aria-label", t("load_progress"));
    if (data) this.progress.value = data.rows.length / data.of;
    this.table.setAttribute("aria-label", t("tab_load"));
    this.table.replaceChildren(data?.rows.length ? this.tableOf(data) : h("p", { class: "hint" }, t("load_empty")));
    this.chart.replaceChildren(...(data?.rows.length ? this.curve(data) : []));
    setText(this.checks, data?.rows.length ? this.sure(data) : "");
  }

  tableOf(data) {
    const slower = (key, row) => key === "compare_speedup" && row.speedup !== null && row.speedup < 1;
    return h("table", {},
      h("caption", {}, `${data.server}: ${t("load_caption")}`),
      h("thead", {}, h("tr", {}, ...COLUMNS.map(([key]) => h("th", { scope: "col" }, t(key))))),
      h("tbody", {}, ...data.rows.map((row) => h("tr", {}, ...COLUMNS.map(([key, cell], i) =>
        h(i ? "td" : "th", { scope: i ? null : "row", class: slower(key, row) ? "slower" : "" }, cell(row)))))));
  }

  // How many requests' inferred counts the server's own counters confirmed.
  sure(data) {
    const sum = (key) => data.rows.reduce((all, row) => all + (key ? row.checks[key] ?? 0 : row.requests - row.failed), 0);
    const checks = t("load_checks", { confirmed: sum("confirmed"), all: sum() });
    return data.baseline ? checks : `${checks} ${t("no_baseline")}`;
  }

  // Speed-up against requests at once where there is a baseline, else the rates themselves.
  curve(data) {
    const most = Math.max(2, ...data.rows.map((row) => row.concurrency));
    const points = (key) => data.rows.filter((row) => row[key] !== null).map((row) => [row.concurrency, row[key]]);
    const rates = points("tokens_per_second");
    const plain = points("plain_tokens_per_second");
    const speedups = points("speedup");
    const x = { min: 0, max: most * 1.08, ticks: data.rows.map((row) => row.concurrency), label: t("load_at_once") };
    const figure = (name, y, items) => h("figure", {}, h("figcaption", {}, name), plot({ width: 520, height: 260, label: name, x, y, items }));
    const line = (list, colour, ink, name, dash) => [{ kind: "line", points: list, colour, ink, name, dash }, { kind: "dots", points: list, colour }];
    const top = Math.max(1, ...rates.map((p) => p[1]), ...plain.map((p) => p[1]));
    const figures = [figure(t("load_rate"), { min: 0, max: top * 1.2, label: t("figure_rate") }, [
      ...line(plain, "--target-line", "--target-ink", t("load_plain"), "6 3"), ...line(rates, "--accepted-line", "--accepted-ink", data.server)])];
    if (speedups.length) {
      const high = Math.max(1.2, ...speedups.map((p) => p[1]));
      figures.unshift(figure(t("compare_speedup"), { min: 0, max: high * 1.15, label: t("compare_speedup") }, [
        { kind: "rule", y: 1, colour: "--slower", name: t("chart_break_even"), ink: "--slower" }, ...line(speedups, "--accepted-line", "--accepted-ink", "")]));
    }
    return [h("div", { class: "pair" }, ...figures)];
  }
}
