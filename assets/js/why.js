// "Why is it fast?": where a round's time goes, prediction against measurement, the cost curve, what if.

import { h, setText } from "./dom.js";
import { t, number, percent, times, words } from "./words.js";
import { store } from "./store.js";
import { plot } from "./svgplot.js";
import { Voice } from "./status.js";

// The run on show as compact rounds, for the server's estimates.
export function trace() {
  const run = store.main;
  if (!run?.rounds.length || run.remote) return ""; // a server does not tell where its time goes
  const rounds = run.rounds.map((round) => {
    const count = (kind) => round.verdicts.filter((v) => v.judgement === kind).length;
    return {
      drafted: round.nodes.length, accepted: count("accepted"), rejected: count("rejected"), tokens: round.tokens.length,
      draft_ms: round.draftMs, verify_ms: round.verifyMs, overhead_ms: round.overheadMs,
    };
  });
  const plain = store.plain?.finished && store.plain.tokens.length ? store.plain.time / store.plain.tokens.length : null;
  const points = store.data.get("curve")?.points ?? [];
  return JSON.stringify({ rounds, plain_ms: plain, curve: Object.fromEntries(points.map((p) => [p.rows, p.ms])) });
}

export class Why {
  constructor(root) {
    root.classList.add("why");
    this.voice = new Voice("why");
    this.running = new Voice("live"); // the check is a run like any other
    this.parts = {};
    for (const name of ["waterfall", "prediction", "curve", "guess"]) {
      this.parts[name] = { name, title: h("h2"), words: h("p", { class: "sd-prose" }), picture: h("div", { class: "picture" }) };
    }
    root.append(this.voice.box, this.running.box, ...Object.values(this.parts).map((p) => h("section", { class: `part part-${p.name}` }, p.title, p.words, p.picture)));
    this.drawn = "";
  }

  update() {
    this.voice.update();
    this.running.update();
    const run = store.main;
    const state = [run?.uid, run?.rounds.length, Boolean(run?.finished), store.plain?.uid, Boolean(store.plain?.finished), words.lang].join();
    const why = store.data.get("why");
    const curve = store.data.get("curve");
    if (state === this.drawn && why === this.why && curve === this.measured) return;
    [this.drawn, this.why, this.measured] = [state, why, curve];
    for (const name of Object.keys(this.parts)) {
      setText(this.parts[name].title, t(`why_${name}`));
      setText(this.parts[name].words, t(`why_${name}_about`));
      this.parts[name].picture.replaceChildren(...(this[name](run) ?? [h("p", { class: "hint" }, t("why_empty"))]));
    }
  }

  // Milliseconds a round and a token: draft, verify, overhead, beside a plain token.
  waterfall(run) {
    const figures = run?.figures();
    if (!figures) return null;
    if (run.remote) return [h("p", { class: "hint" }, t("server_missing"))];
    const each = (key) => figures[key] / figures.rounds;
    const bars = [["draft", "--draft-line"], ["verify", "--ink-soft"], ["overhead", "--ink"]];
    const whole = bars.reduce((sum, [key]) => sum + each(key), 0);
    const plain = store.plain?.finished ? store.plain.time / store.plain.tokens.length : null;
    const most = Math.max(whole, plain ? plain * figures.tau : 0) || 1;
    const row = (name, parts, note) => h("div", { class: "bar-row" }, h("span", { class: "bar-name" }, name),
      h("span", { class: "bar-track" }, ...parts.map(([colour, value, label]) => h("span", { class: "bar-part", title: label, style: `width:${(100 * value) / most}%;background:var(${colour})` }))),
      h("span", { class: "bar-note" }, note));
    const rows = [row(t("why_round"), bars.map(([key, colour]) => [colour, each(key), t(`figure_${key}`)]), t("why_round_note", { ms: number(whole, 1), tau: number(figures.tau, 2) }))];
    if (plain) rows.push(row(t("why_plain"), [["--target-line", plain * figures.tau, t("lane_plain")]], t("why_plain_note", { ms: number(plain * figures.tau, 1), tau: number(figures.tau, 2), each: number(plain, 1) })));
    const key = h("ul", { class: "key" }, ...bars.map(([name, colour]) => h("li", {}, h("i", { style: `background:var(${colour})` }), ` ${t(`figure_${name}`)} ${number(each(name), 1)} ms`)));
    return [...rows, key];
  }

  prediction() {
    const e = this.why?.explanation;
    if (!e) return null;
    const steps = [["predicted", e.predicted, t("why_predicted", { tau: number(e.expected_tau, 2), gamma: number(e.gamma, 1), c: number(e.c, 3) })]];
    let value = e.predicted;
    for (const factor of e.factors) {
      value *= factor.value;
      steps.push([factor.key, value, t(`why_factor_${factor.key}`, { factor: number(factor.value, 2), tau: number(e.tau, 2), expected: number(e.expected_tau, 2), cost: number(e.pass_cost, 2) })]);
    }
    const most = Math.max(1, ...steps.map((s) => s[1]));
    const rows = steps.map(([key, v, note]) => h("div", { class: "bar-row" },
      h("span", { class: "bar-name" }, key === steps[steps.length - 1][0] ? t("why_measured") : t(`why_step_${key}`)),
      h("span", { class: "bar-track ruled", style: `--one:${100 / most}` }, h("span", { class: `bar-part${v < 1 ? " below" : ""}`, style: `width:${(100 * v) / most}%` }), h("b", {}, times(v))),
      h("span", { class: "bar-note" }, note)));
    const limit = e.break_even === null ? t("why_no_break_even") : t("why_break_even", { need: percent(e.break_even), alpha: percent(e.alpha) });
    return [...rows, h("p", { class: "sd-prose" }, limit)];
  }

  // Time of a target pass against the rows it verifies, measured on this device.
  curve() {
    const data = this.measured;
    if (!data?.points?.length) return [h("p", { class: "hint" }, t("why_curve_missing"))];
    const points = data.points.map((p) => [p.rows, p.ms]);
    const one = points[0][1];
    const top = Math.max(...points.map((p) => p[1]));
    const rows = Math.max(...points.map((p) => p[0]));
    const linear = [[1, one], [Math.min(rows, (top * 1.15) / one), Math.min(rows * one, top * 1.15)]];
    const picture = plot({
      width: 620, height: 280, label: t("why_curve"),
      x: { min: 0, max: rows * 1.02, label: t("why_rows") },
      y: { min: 0, max: top * 1.2, label: "ms" },
      items: [
        { kind: "line", points: linear, colour: "--slower", dash: "5 4", name: t("why_linear"), ink: "--slower", anchor: "start" },
        { kind: "line", points, colour: "--accepted-line", name: t("why_measured_pass"), ink: "--accepted-ink" },
        { kind: "dots", points, colour: "--accepted-line" },
      ],
    });
    const facts = (data.facts ?? []).map((fact) => h("li", {}, t(`why_fact_${fact.key}`, fact.values)));
    return [picture, h("ul", { class: "sd-prose" }, ...facts)];
  }

  guess() {
    const data = this.why;
    if (!data?.guess) return null;
    const value = (g) => g.speedup ?? g.tokens_per_second;
    const best = Math.max(...data.lengths.map(value));
    const measured = store.main?.figures();
    const items = [
      { kind: "line", points: data.lengths.map((g) => [g.gamma, value(g)]), colour: "--draft-line", name: t("why_estimate"), ink: "--draft-ink", anchor: "end" },
      { kind: "dots", points: [[data.guess.gamma, value(data.guess)]], colour: "--draft-line", r: 6 },
    ];
    if (data.guess.speedup) items.unshift({ kind: "rule", y: 1, colour: "--slower", name: t("chart_break_even"), ink: "--slower" });
    const ratio = store.speedup(store.main?.rounds.length);
    const at = measured ? measured.drafted / measured.rounds : 0;
    if (ratio) items.push({ kind: "dots", points: [[Math.max(1, at), ratio]], colour: "--accepted-line", r: 6, name: t("why_this_run"), ink: "--accepted-ink" });
    return [
      h("p", { class: "sd-prose" }, t("why_guess_words", { gamma: data.guess.gamma, tau: number(data.guess.tau, 2), speed: data.guess.speedup ? times(data.guess.speedup) : `${number(data.guess.tokens_per_second, 1)} ${t("figure_rate")}`, alpha: percent(data.guess.alpha) })),
      plot({
        width: 620, height: 260, label: t("why_guess"),
        x: { min: 0.5, max: 16.5, ticks: [1, 2, 4, 6, 8, 10, 12, 14, 16], label: "γ" },
        y: { min: 0, max: Math.max(best, ratio ?? 0, 1) * 1.2, label: data.guess.speedup ? t("chart_speedup") : t("figure_rate") },
        items,
      }),
      h("p", { class: "hint" }, t(measured ? "why_estimate_note" : "why_empty")),
    ];
  }
}
