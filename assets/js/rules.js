// Typical next to exact: the same prompt under both acceptance rules, and how far the lossy one strays.

import { h, setText } from "./dom.js";
import { t, number, percent, words } from "./words.js";
import { store } from "./store.js";
import { recording } from "./library.js";
import { common, textFrom } from "./diff.js";

const RULES = ["exact", "typical"];
const RECORDED = { exact: "medusa", typical: "typical" }; // the same prompt and seed, with each rule

export class Rules {
  constructor() {
    this.title = h("h2");
    this.about = h("p", { class: "sd-prose" });
    this.origin = h("p", { class: "hint" });
    this.table = h("div", { class: "table-box", tabindex: "0" });
    this.texts = h("div", { class: "pair" });
    this.box = h("section", {}, this.title, this.about, this.origin, this.table, this.texts);
    this.drawn = "";
  }

  // The runs by rule: those of this page as soon as there is one, else the recorded pair.
  runs() {
    const live = RULES.map((rule) => store.runs.get(`rule:${rule}`) ?? null);
    if (live.some(Boolean)) return { kind: "live", runs: live };
    return { kind: "recorded", runs: RULES.map((rule) => recording(RECORDED[rule], () => store.changed())?.main ?? null) };
  }

  update() {
    const { kind, runs } = this.runs();
    const state = `${kind} ${runs.map((run) => `${run?.uid}:${run?.rounds.length}:${Boolean(run?.finished)}`)} ${words.lang}`;
    if (state === this.drawn) return;
    this.drawn = state;
    setText(this.title, t("rules_title"));
    setText(this.about, t("rules_about"));
    this.table.setAttribute("aria-label", t("rules_title"));
    const { started } = runs.find((run) => run?.started) ?? {};
    const where = started && { drafter: started.drafter, model: started.model, dtype: started.dtype, device: started.environment?.device_name ?? started.device };
    setText(this.origin, where ? t(`rules_${kind}`, where) : t("rules_missing"));
    this.table.replaceChildren(...(started ? [this.tableOf(runs)] : []));
    const both = runs.every((run) => run?.finished);
    const at = both ? common(runs[0].tokens, runs[1].tokens) : Infinity;
    this.texts.replaceChildren(...runs.map((run, i) => run && textFrom(t(`rule_${RULES[i]}`), run, Math.min(at, run.tokens.length))).filter(Boolean));
  }

  tableOf(runs) {
    const kl = runs.some((run) => Number.isFinite(run?.finished?.summary?.drift?.mean_kl));
    const columns = ["figure_tau", "figure_alpha", "figure_rate", "drift_different", "drift_surprise", ...(kl ? ["drift_kl"] : [])];
    const row = (run, rule) => {
      const figures = run?.figures();
      const drift = run?.finished?.summary?.drift;
      const cells = figures ? [number(figures.tau, 2), figures.alpha === null ? "–" : percent(figures.alpha), number(figures.rate, 1)] : ["–", "–", "–"];
      const none = run?.started?.lossless ? t("drift_none") : "–";
      cells.push(drift ? t("drift_of", drift) : none, drift ? number(drift.mean_surprise, 2) : "–");
      if (kl) cells.push(drift ? number(drift.mean_kl, 3) : "–");
      return h("tr", {}, h("th", { scope: "row" }, t(`rule_${rule}`)), ...cells.map((cell) => h("td", {}, cell)));
    };
    return h("table", { class: "rules" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("rules_rule")), ...columns.map((key) => h("th", { scope: "col" }, t(key))))),
      h("tbody", {}, ...runs.map((run, i) => row(run, RULES[i]))));
  }
}
