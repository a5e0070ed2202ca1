// "Compare": one prompt through all drafters; a table, acceptance by position, downloads.

import { h, save, setText } from "./dom.js";
import { t, number, percent, times, words } from "./words.js";
import { store } from "./store.js";
import { MARGIN, differences, plainSpeed, rows } from "./compared.js";
import { narrow, plot, ticks } from "./svgplot.js";
import { Voice } from "./status.js";

const COLOURS = [1, 2, 3, 4, 5, 6].map((number) => `--method-${number}`);
const DASHES = [null, "6 3", "2 3", "8 3 2 3", "1 3", "10 4"];
const LETTERS = 24; // of a name beside its line
const FEW_LETTERS = 13; // on a phone
const COLUMNS = ["tokens", "tau", "alpha", "efficiency", "rate", "speedup", "draft", "verify", "overhead"];

export class Compare {
  constructor(root) {
    root.classList.add("compare");
    this.voice = new Voice("compare");
    this.about = h("p", { class: "sd-prose" });
    this.progress = h("progress", { max: 1, value: 0 });
    this.plain = h("p", { class: "finding", role: "status" });
    this.table = h("div", { class: "table-box", tabindex: "0" });
    this.unlike = h("p", { class: "hint" });
    this.charts = h("div", { class: "pair" });
    this.csv = h("button", { type: "button", class: "quiet", onclick: () => this.saveCsv() });
    this.jsonl = h("button", { type: "button", class: "quiet", onclick: () => this.saveJsonl() });
    root.append(this.about, this.voice.box, this.progress, this.plain, this.table, this.unlike, h("div", { class: "controls" }, this.csv, this.jsonl), this.charts);
    this.drawn = "";
  }

  update() {
    this.voice.update();
    setText(this.about, t("compare_about"));
    setText(this.csv, t("compare_csv"));
    setText(this.jsonl, t("compare_jsonl"));
    const at = store.data.get("compare");
    this.progress.hidden = !at || at.at >= at.of;
    this.progress.setAttribute("aria-label", t("compare_progress"));
    if (at) this.progress.value = at.at / at.of;
    const all = rows();
    this.csv.disabled = this.jsonl.disabled = !all.length;
    const state = `${all.map((row) => `${row.run.uid}:${row.run.rounds.length}:${Boolean(row.run.finished)}`)} ${words.lang}`;
    const now = performance.now();
    if (state === this.drawn || (now - (this.at ?? 0) < 250 && all.some((row) => !row.run.finished))) return;
    this.drawn = state;
    this.at = now;
    this.plainWords();
    const unlike = differences(all);
    setText(this.unlike, unlike.length ? t("compare_unlike", { what: unlike.map((key) => t(`compare_unlike_${key}`)).join(t("comma")) }) : "");
    this.table.setAttribute("aria-label", t("tab_compare"));
    this.table.replaceChildren(all.length ? this.tableOf(all) : h("p", { class: "hint" }, t("compare_empty")));
    this.charts.replaceChildren(...(all.length ? [this.speeds(all), this.depths(all)] : []));
  }

  // How plain decoding did before and after the others: a machine that changed its speed is said to have.
  plainWords() {
    const plain = plainSpeed();
    const both = plain?.rates.length > 1;
    const values = both ? { first: number(plain.rates[0]), last: number(plain.rates[1]), apart: percent(plain.apart) } : {};
    const changed = both && plain.apart > MARGIN;
    setText(this.plain, both ? t(changed ? "compare_changed" : "compare_steady", values) : "");
    this.plain.classList.toggle("differs", changed);
  }

  cell(key, { figures, speedup }) {
    if (!figures || (key !== "speedup" && figures[key] === null)) return "–";
    if (key === "speedup") return times(speedup);
    if (key === "alpha" || key === "efficiency") return percent(figures[key]);
    if (key === "tau") return number(figures.tau, 2);
    if (key === "rate") return number(figures.rate, 1);
    if (key === "tokens") return String(figures.tokens);
    return number(figures[key] / figures.rounds, 1);
  }

  tableOf(all) {
    return h("table", {},
      h("caption", {}, t("compare_caption")),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("drafter")), ...COLUMNS.map((key) => h("th", { scope: "col" }, t(`compare_${key}`))))),
      h("tbody", {}, ...all.map((row) => h("tr", {}, h("th", { scope: "row" }, row.name),
        ...COLUMNS.map((key) => h("td", { class: key === "speedup" && row.below ? "slower" : "" }, this.cell(key, row)))))));
  }

  speeds(all) {
    const shown = all.filter((row) => row.figures);
    const most = Math.max(1, ...shown.map((row) => row.figures.rate));
    return h("figure", {}, h("figcaption", {}, t("compare_rates")), h("div", {}, ...shown.map((row) => h("div", { class: "bar-row" },
      h("span", { class: "bar-name" }, row.name),
      h("span", { class: "bar-track" }, h("span", { class: `bar-part${row.below ? " below" : ""}`, style: `width:${(100 * row.figures.rate) / most}%${row.plain ? ";background:var(--target-line)" : ""}` }), h("b", {}, number(row.figures.rate, 1))),
      h("span", { class: "bar-note" }, row.speedup === null ? "" : times(row.speedup))))));
  }

  depths(all) {
    const series = all.map((row) => ({ name: row.name, points: row.run.acceptanceByDepth().map((cell, i) => [i + 1, cell.rate]).filter(([, rate]) => rate !== null) })).filter((one) => one.points.length);
    if (!series.length) return h("figure", {});
    const deepest = Math.max(2, ...series.flatMap((one) => one.points.map((p) => p[0])));
    const most = narrow() ? FEW_LETTERS : LETTERS;
    const short = (name) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);
    const longest = Math.max(...series.map((one) => short(one.name).length));
    return h("figure", {}, h("figcaption", {}, t("compare_depths")), plot({
      width: 560, height: 280, label: t("compare_depths"), margin: { left: 58, right: Math.max(104, 24 + 8.2 * longest) },
      x: { min: 0.8, max: deepest + 0.2, ticks: ticks(1, deepest, 8).filter(Number.isInteger), label: t("compare_depth") },
      y: { min: 0, max: 1.12, ticks: [0, 0.25, 0.5, 0.75, 1], format: (v) => percent(v), label: "α" },
      items: series.flatMap((one, i) => [
        { kind: "line", points: one.points, colour: COLOURS[i % COLOURS.length], dash: DASHES[i % DASHES.length] },
        { kind: "dots", points: one.points, colour: COLOURS[i % COLOURS.length], r: 3 }]).concat({
        kind: "names", names: series.map((one, i) => ({ name: short(one.name), at: one.points[one.points.length - 1], ink: COLOURS[i % COLOURS.length] })),
      }),
    }));
  }

  saveCsv() {
    const quote = (value) => {
      const text = value === null || value === undefined ? "" : String(value);
      const safe = /^[=+\-@\t]/.test(text) && typeof value === "string" ? `'${text}` : text; // no formulas in a spreadsheet
      return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    };
    const plain = plainSpeed();
    const names = ["drafter", "model", "dtype", "device", "seed", ...COLUMNS, "rounds", "plain_rate", "plain_apart"];
    const lines = rows().filter((row) => row.figures).map((row) => {
      const { started, figures } = { started: row.run.started, figures: row.figures };
      const each = (key) => (["draft", "verify", "overhead"].includes(key) ? figures[key] / figures.rounds : key === "speedup" ? row.speedup : figures[key]);
      return [row.name, started.model, started.dtype, started.device, started.seed, ...COLUMNS.map(each), figures.rounds, row.baseline, row.file ? null : plain?.apart].map(quote).join(",");
    });
    save("specdemo-compare.csv", "text/csv", `${names.join(",")}\n${lines.join("\n")}\n`);
  }

  saveJsonl() {
    const plain = plainSpeed();
    const lines = rows().map((row) => JSON.stringify({ drafter: row.name, speedup: row.speedup, plain_rate: row.baseline, plain_apart: row.file ? null : plain?.apart ?? null, figures: row.figures, events: row.run.lines.map((line) => JSON.parse(line)) }));
    save("specdemo-compare.jsonl", "application/jsonl", `${lines.join("\n")}\n`);
  }
}
