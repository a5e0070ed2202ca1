// The lessons: what each shows and asks. Every figure and every answer comes from a recorded real run.

import { h, visible } from "./dom.js";
import { t, number, percent, probability } from "./words.js";
import { plot } from "./svgplot.js";
import { drawTree } from "./tree.js";
import { alternativesTable } from "./alternatives.js";

const mean = (list) => (list.length ? list.reduce((a, b) => a + b, 0) / list.length : null);
const final = (round) => round.tokens.find((x) => x.node === null || x.node === undefined);

// Passes of a recording as [rows, milliseconds].
function passes({ main, plain }) {
  const all = main.rounds.map((r) => [r.nodes.length + 1, r.targetMs ?? r.verifyMs]);
  if (plain) all.push(...plain.rounds.map((r) => [1, r.targetMs ?? r.verifyMs]));
  return all;
}

// A refused token with p, q and residual at its place; of several the one that was nearest to a coin's toss.
export function refusal(run) {
  let best = null;
  for (const round of run.rounds) {
    const node = round.verdicts.findIndex((v) => v.judgement === "rejected" && v.threshold !== null);
    const token = node >= 0 ? final(round) : null;
    if (!token?.alternatives.some((x) => x.residual !== null && x.residual !== undefined)) continue;
    const distance = Math.abs(0.4 - round.verdicts[node].threshold);
    if (!best || distance < best.distance) best = { round, node, token, distance };
  }
  return best;
}

function memory(pair) {
  const all = passes(pair);
  const most = Math.max(...all.map(([rows]) => rows));
  const top = Math.max(...all.map(([, ms]) => ms));
  return plot({
    width: 520, height: 260, label: t("lesson_memory_figure"),
    x: { min: 0, max: most + 0.5, label: t("why_rows") }, y: { min: 0, max: top * 1.1, label: "ms" },
    items: [{ kind: "dots", points: all, colour: "--accepted-line", r: 3.2 }],
  });
}

function professor({ main }) {
  const rounds = main.rounds.filter((r) => r.nodes.length).slice(0, 7);
  const most = Math.max(...rounds.map((r) => r.draftMs + r.verifyMs)) || 1;
  return h("div", {}, ...rounds.map((round) => h("div", { class: "bar-row lesson-round" },
    h("span", { class: "bar-track" },
      h("span", { class: "bar-part", style: `width:${(100 * round.draftMs) / most}%;background:var(--draft-line)`, title: t("figure_draft") }),
      h("span", { class: "bar-part", style: `width:${(100 * round.verifyMs) / most}%;background:var(--ink-soft)`, title: t("figure_verify") })),
    h("span", { class: "lesson-text" }, ...round.tokens.map((x) => h("span", { class: `token o-${x.origin}` }, x.text))))),
  h("ul", { class: "key" }, h("li", {}, h("i", { style: "background:var(--draft-line)" }), ` ${t("lesson_assistant")}`), h("li", {}, h("i", { style: "background:var(--ink-soft)" }), ` ${t("lesson_professor_role")}`)));
}

function judged({ main }) {
  const found = refusal(main);
  if (!found) return h("p", { class: "hint" }, t("lesson_no_refusal"));
  return h("div", {}, alternativesTable(found.token, found.round.nodes[found.node]));
}

// min(p, q) came from the draft, the rest from the residual: together p again.
function unchanged({ main }) {
  const found = refusal(main);
  if (!found) return h("p", { class: "hint" }, t("lesson_no_refusal"));
  const rows = found.token.alternatives.filter((x) => x.q !== null && x.q !== undefined).slice(0, 6);
  const most = Math.max(...rows.map((x) => Math.max(x.p, x.q)), 0.01);
  const part = (value, colour, label) => h("span", { class: "bar-part", style: `width:${(100 * value) / most}%;background:var(${colour})`, title: label });
  return h("div", {}, ...rows.map((x) => h("div", { class: "bar-row lesson-sum" },
    h("span", { class: "bar-name" }, visible(x.text)),
    h("span", { class: "bar-track" }, part(Math.min(x.p, x.q), "--accepted-line", t("origin_accepted")), part(Math.max(0, x.p - x.q), "--corrected-line", t("origin_corrected"))),
    h("span", { class: "bar-note" }, `p = ${probability(x.p)}`))),
  h("ul", { class: "key" }, h("li", {}, h("i", { style: "background:var(--accepted-line)" }), ` min(p, q): ${t("origin_accepted")}`), h("li", {}, h("i", { style: "background:var(--corrected-line)" }), ` p − min(p, q): ${t("origin_corrected")}`)));
}

function tree({ main }, room) {
  const round = main.rounds.reduce((best, r) => (r.nodes.length && r.tokens.length > (best?.tokens.length ?? 0) ? r : best), null);
  if (!round) return null;
  round.before = round.first > 0 ? main.tokens[round.first - 1].text : null;
  return h("div", { class: "tree-box", tabindex: "0", "aria-label": t("tree_label") }, drawTree(round, 3, null, null, room, false));
}

function depths({ main }) {
  const points = main.acceptanceByDepth().map((cell, i) => [i + 1, cell.rate]).filter(([, rate]) => rate !== null);
  if (!points.length) return null;
  return plot({
    width: 520, height: 240, label: t("compare_depths"), margin: { left: 62 },
    x: { min: 0.5, max: Math.max(2, points.length) + 0.5, ticks: points.map(([d]) => d), label: t("compare_depth") },
    y: { min: 0, max: 1.15, ticks: [0, 0.25, 0.5, 0.75, 1], format: (v) => percent(v), label: "α" },
    items: [{ kind: "line", points, colour: "--accepted-line" }, { kind: "dots", points, colour: "--accepted-line", r: 5, each: (rate) => percent(rate), ink: "--accepted-ink" }],
  });
}

function typical({ main }) {
  return h("p", { class: "lesson-text" }, ...main.tokens.map((x) => h("span", { class: `token o-${x.origin}` }, x.text)));
}

function chunks({ main }) {
  return h("ol", { class: "chunks" }, ...main.rounds.slice(0, 8).map((r) => h("li", {}, ...r.tokens.map((x) => h("span", { class: `token o-${x.origin}` }, x.text)))));
}

// `answer` tells which of the three options was right on this run, with the figures to say so.
export const LESSONS = [
  {
    name: "memory", paragraphs: 3, recording: "repeat", figure: memory,
    answer(pair) {
      const all = passes(pair);
      const most = Math.max(...all.map(([rows]) => rows));
      const one = mean(all.filter(([rows]) => rows === 1).map((x) => x[1]));
      const many = mean(all.filter(([rows]) => rows === most).map((x) => x[1]));
      const ratio = many / one;
      return { right: ratio < most / 4 ? 0 : ratio < most * 0.75 ? 1 : 2, values: { rows: most, ratio: number(ratio, 1), one: number(one, 1), many: number(many, 1) } };
    },
  },
  {
    name: "professor", paragraphs: 3, recording: "copy", figure: professor,
    answer({ main }) {
      const { alpha, accepted, rejected } = main.figures();
      return { right: alpha < 0.4 ? 0 : alpha < 0.8 ? 1 : 2, values: { alpha: percent(alpha), accepted, tested: accepted + rejected } };
    },
  },
  {
    name: "verify", paragraphs: 3, recording: "story", figure: judged,
    answer({ main }) {
      const found = refusal(main);
      if (!found) return null;
      const verdict = found.round.verdicts[found.node];
      const node = found.round.nodes[found.node];
      return { right: 2, values: { text: visible(node.text), p: probability(verdict.p), q: probability(node.q), chance: probability(verdict.threshold) } };
    },
  },
  {
    name: "quality", paragraphs: 3, recording: "story", other: "repeat", figure: unchanged,
    answer(_, { main, plain }) {
      let same = 0;
      while (same < main.tokens.length && same < plain.tokens.length && main.tokens[same].id === plain.tokens[same].id) same += 1;
      return { right: same === main.tokens.length ? 0 : 1, values: { same, tokens: main.tokens.length } };
    },
  },
  {
    name: "eagle3", paragraphs: 3, recording: "eagle3", figure: tree,
    answer({ main }) {
      const { tau } = main.figures();
      return { right: tau < 1.5 ? 0 : tau < 3 ? 1 : 2, values: { tau: number(tau, 2), nodes: number(mean(main.rounds.map((r) => r.nodes.length)), 1) } };
    },
  },
  {
    name: "medusa", paragraphs: 2, recording: "medusa", figure: depths,
    answer({ main }) {
      const cells = main.acceptanceByDepth().filter((c) => c.rate !== null);
      if (cells.length < 2) return null;
      const [first, last] = [cells[0].rate, cells[cells.length - 1].rate];
      return { right: last > first + 0.05 ? 0 : last < first - 0.05 ? 2 : 1, values: { first: percent(first), last: percent(last), depth: cells.length } };
    },
  },
  {
    name: "relaxed", paragraphs: 2, recording: "typical", figure: typical,
    answer({ main }) {
      const drift = main.finished?.summary?.drift;
      if (!drift) return null;
      const share = drift.different / Math.max(1, drift.tokens);
      return { right: drift.different === 0 ? 0 : share < 0.2 ? 1 : 2, values: { different: drift.different, tokens: drift.tokens, share: percent(share) } };
    },
  },
  {
    name: "frameworks", paragraphs: 3, recording: "copy", figure: chunks,
    answer({ main }) {
      const { rounds, tokens, tau } = main.figures();
      return { right: 1, values: { rounds, tokens, half: Math.ceil(rounds / 2), tau: number(tau, 2) } };
    },
  },
];
