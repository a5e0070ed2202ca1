// The figures of the run on show, the large speed-up, and the spoken line for screen readers.

import { h, setText } from "./dom.js";
import { t, number, percent, times } from "./words.js";
import { store } from "./store.js";

const CELLS = ["rate", "tau", "alpha", "rounds", "tokens", "draft", "verify", "overhead"];

export class Speedup {
  constructor() {
    this.value = h("output", { class: "value", id: "speedup-value" });
    this.under = h("p", { class: "under" });
    this.name = h("p", { class: "name" });
    this.box = h("div", { class: "speedup" }, this.name, this.value, this.under);
  }

  update() {
    const ratio = store.speedup(store.shown(store.main));
    setText(this.name, t("speedup"));
    setText(this.value, times(ratio));
    this.value.classList.toggle("slower", ratio !== null && ratio < 1);
    this.value.classList.toggle("missing", ratio === null);
    let line = t(store.main?.remote && store.main.finished && !store.plain ? "no_baseline" : "speedup_unmeasured");
    if (ratio !== null) line = t(ratio < 1 ? "speedup_slower" : "speedup_faster", { rate: number(store.plain.figures().rate) });
    setText(this.under, line);
  }
}

export class Status {
  constructor() {
    this.values = {};
    this.names = {};
    this.box = h("dl", { class: "figures" });
    for (const cell of CELLS) {
      this.names[cell] = h("dt");
      this.values[cell] = h("dd");
      this.box.append(h("div", { class: `figure f-${cell}` }, this.names[cell], this.values[cell]));
    }
  }

  update() {
    const figures = store.main?.figures(store.shown(store.main)) ?? null;
    for (const cell of CELLS) {
      setText(this.names[cell], t(`figure_${cell}`));
      const untold = store.main?.remote && figures && figures[cell] === null;
      this.names[cell].title = t(untold ? "server_missing_short" : `figure_${cell}_why`);
      setText(this.values[cell], this.format(cell, figures));
    }
  }

  format(cell, figures) {
    if (!figures || figures[cell] === null) return "–";
    if (cell === "alpha") return figures.alpha === null ? "–" : percent(figures.alpha);
    if (cell === "tau") return number(figures.tau, 2);
    if (cell === "rate") return number(figures.rate, 1);
    if (cell === "tokens" || cell === "rounds") return String(figures[cell]);
    return `${number(figures[cell], 0)} ms`;
  }
}

// One polite line: what the page is doing, and now and then what a round brought.
export class Voice {
  // `speaks`: also tells screen readers what rounds brought (one place of the page does).
  constructor(feed = "live", speaks = false) {
    this.feed = feed;
    this.speaks = speaks;
    this.line = h("p", { class: "state", role: "status", "aria-live": "polite" });
    this.spoken = h("p", { class: "sr-only", role: "status", "aria-live": "polite" });
    this.error = h("p", { class: "error", role: "alert" });
    this.box = h("div", { class: "voice" }, this.line, this.error, this.spoken);
    this.lastSpoken = 0;
  }

  spelled(values = {}) {
    return values.reason ? { ...values, reason: t(`reason_${values.reason}`) } : values;
  }

  update() {
    const status = store.status(this.feed);
    setText(this.line, status.key ? t(status.key, this.spelled(status.values)) : "");
    setText(this.error, status.state === "error" ? status.message : "");
    this.error.hidden = status.state !== "error";
    this.line.hidden = status.state === "error" || !this.line.textContent;
    if (this.speaks) this.speak();
  }

  speak() {
    const run = store.main;
    const count = store.shown(run);
    const now = performance.now();
    if (!run || !count || (now - this.lastSpoken < 4000 && count < run.rounds.length)) return;
    const round = run.rounds[count - 1];
    if (this.round === round) return;
    this.round = round;
    this.lastSpoken = now;
    const accepted = round.verdicts.filter((v) => v.judgement === "accepted").length;
    setText(this.spoken, t("spoken_round", { round: round.number, drafted: round.nodes.length, accepted, text: round.tokens.map((x) => x.text).join("") }));
  }
}
