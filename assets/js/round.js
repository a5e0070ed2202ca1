// One round, step by step: draft, one target pass, the cut, the commit. Any round of the run on show.

import { h, setText, typeSize, visible, reducedMotion } from "./dom.js";
import { t, number, probability, words } from "./words.js";
import { store } from "./store.js";
import { alternativesTable } from "./alternatives.js";
import { drawTree, drawMask } from "./tree.js";

const STAGES = ["draft", "pass", "cut", "commit"];

export class RoundView {
  constructor(root) {
    this.stage = 3;
    this.chosen = null;
    this.back = h("button", { type: "button", onclick: () => this.go(store.round - 1) }, "←");
    this.next = h("button", { type: "button", onclick: () => this.go(store.round + 1) }, "→");
    this.slider = h("input", { type: "range", min: 0, value: 0, oninput: () => this.go(Number(this.slider.value)) });
    this.name = h("span", { class: "round-name" });
    this.play = h("button", { type: "button", onclick: () => this.animate() });
    this.stages = STAGES.map((_, i) => h("button", { type: "button", class: "stage-step", onclick: () => this.setStage(i) }));
    this.words = h("p", { class: "round-words", "aria-live": "polite" });
    this.context = h("p", { class: "round-context" });
    this.tree = h("div", { class: "tree-box", tabindex: "0" });
    this.mask = h("figure", { class: "mask-box" });
    this.detail = h("div", { class: "detail" });
    this.empty = h("p", { class: "hint" });
    this.body = h("div", {},
      h("div", { class: "round-top" },
        h("div", { class: "round-nav" }, this.back, this.slider, this.next, this.name),
        h("div", { class: "round-stages" }, ...this.stages, this.play)),
      this.words, this.context,
      h("div", { class: "round-picture" }, this.tree, this.mask),
      this.detail);
    root.classList.add("round");
    root.append(this.empty, this.body);
    root.addEventListener("keydown", (e) => this.key(e));
    words.listeners.add(() => { this.drawn = ""; });
    document.addEventListener("specdemo:theme", () => { this.drawn = ""; store.changed(); });
    this.drawn = "";
  }

  key(event) {
    if (event.target === this.slider) return;
    if (event.key === "ArrowRight") this.setStage(this.stage === 3 ? 0 : this.stage + 1, this.stage === 3 ? 1 : 0);
    else if (event.key === "ArrowLeft") this.setStage(this.stage === 0 ? 3 : this.stage - 1, this.stage === 0 ? -1 : 0);
    else if (event.key === "PageDown") this.go(store.round + 1);
    else if (event.key === "PageUp") this.go(store.round - 1);
    else return;
    event.preventDefault();
  }

  setStage(stage, move = 0) {
    if (move) {
      const last = (store.main?.rounds.length ?? 1) - 1;
      const target = Math.min(last, Math.max(0, store.round + move));
      if (target === store.round) return;
      store.round = target;
      this.chosen = null;
    }
    this.stage = stage;
    this.update();
  }

  go(index) {
    const last = (store.main?.rounds.length ?? 1) - 1;
    store.round = Math.min(last, Math.max(0, index));
    this.chosen = null;
    this.stage = 3;
    this.update();
  }

  animate() {
    clearInterval(this.timer);
    this.setStage(0);
    this.timer = setInterval(() => {
      if (this.stage >= 3) clearInterval(this.timer);
      else this.setStage(this.stage + 1);
    }, reducedMotion() ? 2200 : 1300);
  }

  update() {
    const run = store.main;
    if (run !== this.run && run?.rounds.length) {
      // Begin where there is something to see: a refusal, or at least a proposal.
      const at = (test) => run.rounds.findIndex(test);
      const refused = at((r) => r.verdicts.some((v) => v.judgement === "rejected"));
      const drafted = at((r) => r.nodes.length > 0);
      if (refused < 0 && drafted < 0 && !run.finished) return;
      this.run = run;
      store.round = Math.max(0, refused >= 0 ? refused : drafted);
      this.chosen = null;
    }
    const round = run?.rounds[store.round];
    this.body.hidden = !round;
    setText(this.empty, round ? "" : t("round_empty"));
    this.empty.hidden = Boolean(round);
    if (!round) return;
    round.before = round.first > 0 ? run.tokens[round.first - 1].text : null;
    if (this.chosen === null) this.chosen = this.interesting(round);
    const state = `${run.uid}/${run.rounds.length}/${store.round}/${this.stage}/${this.chosen}/${words.lang}`;
    if (state === this.drawn) return;
    this.drawn = state;
    this.labels(run, round);
    const held = document.activeElement?.closest?.("[data-node]")?.dataset.node;
    this.tree.replaceChildren(drawTree(round, this.stage, this.chosen, (i) => { this.chosen = i; this.update(); }, this.room()));
    if (held !== undefined) this.tree.querySelector(`[data-node="${held}"]`)?.focus();
    this.mask.replaceChildren(drawMask(round.nodes, this.chosen), h("figcaption", {}, t("mask_words")));
    this.explain(run, round);
  }

  // Width for the tree: what the mask beside it leaves.
  room() {
    const all = this.tree.parentElement.clientWidth;
    if (!all) return undefined;
    return all > 720 ? all - typeSize(290) : all;
  }

  // The token most worth opening: the refused one, or else the first.
  interesting(round) {
    const refused = round.verdicts.findIndex((v) => v.judgement === "rejected");
    if (refused >= 0) return refused;
    return round.nodes.length ? 0 : "final";
  }

  labels(run, round) {
    const counts = { accepted: 0, rejected: 0, not_judged: 0 };
    for (const verdict of round.verdicts) counts[verdict.judgement] += 1;
    this.slider.max = run.rounds.length - 1;
    this.slider.value = store.round;
    this.slider.setAttribute("aria-label", t("round"));
    this.back.setAttribute("aria-label", t("round_back"));
    this.next.setAttribute("aria-label", t("round_next"));
    this.back.disabled = store.round === 0;
    this.next.disabled = store.round === run.rounds.length - 1;
    setText(this.name, t("round_of", { n: store.round + 1, all: run.rounds.length, source: round.source ? ` (${round.source})` : "" }));
    setText(this.play, t("round_play"));
    this.tree.setAttribute("aria-label", t("tree_label"));
    this.stages.forEach((button, i) => {
      setText(button, `${i + 1} ${t(`stage_${STAGES[i]}`)}`);
      button.setAttribute("aria-pressed", String(i === this.stage));
    });
    const final = round.tokens[round.tokens.length - 1];
    const values = {
      drafted: round.nodes.length, rows: round.nodes.length + 1, ...counts, draft_ms: number(round.draftMs, 1),
      verify_ms: number(round.verifyMs, 1), tokens: round.tokens.length, origin: final ? t(`origin_${final.origin}`) : "",
      text: final ? visible(final.text) : "",
    };
    const bare = round.nodes.length ? "" : "_none";
    setText(this.words, run.remote ? t("server_round") : t(`stage_${STAGES[this.stage]}${bare}_words`, values));
    const tail = run.tokens.slice(Math.max(0, round.first - 18), round.first).map((token) => token.text).join("");
    setText(this.context, round.first ? `… ${tail}` : t("prompt_end"));
  }

  // The chosen token: p, q, u, min(1, p/q), verdict, the likeliest tokens and the residual.
  explain(run, round) {
    const node = typeof this.chosen === "number" ? round.nodes[this.chosen] : null;
    const verdict = node ? round.verdicts[this.chosen] : null;
    const final = round.tokens.find((x) => x.node === null || x.node === undefined);
    if (!node && !final) {
      this.detail.replaceChildren();
      return;
    }
    const committed = node ? this.committedAt(round, node.parent) : final;
    const title = node ? node.text : final.text;
    const lines = [];
    if (node && verdict.judgement !== "not_judged") {
      const q = node.q === null || node.q === undefined ? 1 : node.q;
      lines.push(h("p", { class: "formula" }, `min(1, p/q) = min(1, ${probability(verdict.p)} / ${probability(q)}) = `, h("b", {}, probability(verdict.threshold))));
      const drawn = verdict.draw === null ? t(verdict.threshold >= 1 ? "draw_sure" : "draw_never") : t(verdict.judgement === "accepted" ? "draw_below" : "draw_above", { u: probability(verdict.draw) });
      lines.push(h("p", {}, drawn));
    }
    const state = node ? verdict.judgement : final.origin;
    lines.unshift(h("p", { class: "what" },
      h("span", { class: `token ${node ? `n-${state}` : `o-${state}`}` }, visible(title)), " ",
      h("b", {}, node ? t(this.stage >= 2 ? verdict.judgement : "proposed") : t(`origin_${state}`)),
      node ? "" : ` · ${t(`origin_${state}_why`)}`));
    if (node && run.started?.settings?.temperature === 0) lines.push(h("p", { class: "hint" }, t("greedy_words")));
    if (node && node.q === null) lines.push(h("p", { class: "hint" }, t("q_none_words")));
    this.detail.replaceChildren(h("div", { class: "detail-words" }, ...lines), alternativesTable(committed, node ?? final));
  }

  committedAt(round, parent) {
    const inPath = round.tokens.find((x) => x.node !== null && x.node !== undefined && round.nodes[x.node].parent === parent);
    if (inPath) return inPath;
    const last = round.tokens[round.tokens.length - 1];
    const path = round.tokens.filter((x) => x.node !== null && x.node !== undefined);
    const end = path.length ? path[path.length - 1].node : -1;
    return last && (last.node === null || last.node === undefined) && end === parent ? last : null;
  }
}
