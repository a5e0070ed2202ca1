// The token stream: one span a token, coloured by where the token came from. Only appended to.

import { h } from "./dom.js";
import { t } from "./words.js";
import { store } from "./store.js";

export class Stream {
  // `slot`: the run shown. `pick(token, round)`: called when the reader points at a token.
  constructor(slot, pick) {
    this.slot = slot;
    this.pick = pick;
    this.ghosts = false;
    this.run = null;
    this.drawn = 0;
    this.pending = h("span", { class: "pending", "aria-hidden": "true" });
    this.box = h("div", { class: "stream", role: "log", "aria-live": "off", tabindex: "0" });
    for (const kind of ["click", "mouseover", "focusin"]) this.box.addEventListener(kind, (e) => this.point(e, kind));
    this.box.addEventListener("keydown", (e) => this.walk(e));
  }

  update() {
    const run = store.runs.get(this.slot) ?? null;
    const count = store.shown(run);
    this.box.setAttribute("aria-label", t(this.slot === "plain" ? "stream_plain_label" : "stream_label"));
    if (run !== this.run || count < this.drawn || this.stale) this.clear(run);
    if (!run) return;
    const draft = this.visibleDraft(run, count);
    if (count === this.drawn && draft === this.draft) return; // asking for sizes makes the browser lay out
    const stick = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < 24;
    if (count > this.drawn) {
      this.pending.remove();
      const part = document.createDocumentFragment();
      for (; this.drawn < count; this.drawn += 1) this.append(part, run.rounds[this.drawn]);
      this.box.append(part);
    }
    this.showDraft(draft);
    if (stick) this.box.scrollTop = this.box.scrollHeight;
  }

  clear(run) {
    this.run = run;
    this.drawn = 0;
    this.stale = false;
    this.draft = null;
    this.box.replaceChildren();
  }

  // The round under way, once its draft is there in the time on show.
  visibleDraft(run, count) {
    const next = run.rounds[count] ?? run.open;
    return next && Number.isFinite(store.time) && store.time >= next.start + next.draftMs ? next : null;
  }

  // Draft tokens of the round under way: not verified yet, so without a colour.
  showDraft(draft) {
    this.draft = draft;
    this.pending.replaceChildren();
    if (!draft) return;
    let parent = -1;
    draft.nodes.forEach((node, i) => {
      if (node.parent !== parent) return; // of a tree only the first branch fits in a line
      parent = i;
      this.pending.append(h("span", { class: "token" }, node.text));
    });
    this.box.append(this.pending);
  }

  append(part, round) {
    round.tokens.forEach((token, i) => {
      if (this.ghosts && i === round.tokens.length - 1) this.refused(part, round);
      const classes = ["token", `o-${token.origin}`];
      if (token.text === "\n" || token.text === "\n\n") classes.push("line-end");
      if (token.certain === false) classes.push("uncertain");
      part.append(h("span", { class: classes.join(" "), tabindex: "-1", data: { token: round.first + i } }, token.text));
    });
  }

  refused(part, round) {
    round.nodes.forEach((node, i) => {
      const judgement = round.verdicts[i].judgement;
      if (judgement === "accepted") return;
      const title = t(judgement === "rejected" ? "rejected" : "not_judged");
      part.append(h("del", { class: `ghost ${judgement}`, title, data: { node: i, round: round.index } }, node.text));
    });
  }

  showGhosts(on) {
    this.ghosts = on;
    this.stale = true;
    this.update();
  }

  point(event, kind) {
    const span = event.target.closest?.("[data-token]");
    if (!span || !this.run) return;
    const token = this.run.tokens[Number(span.dataset.token)];
    if (!token) return;
    if (kind === "click") span.focus({ preventScroll: true });
    this.pick(token, span);
  }

  walk(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const edge = event.key === "Home" || event.key === "End";
    if (!step && !edge) return;
    const all = this.box.querySelectorAll("[data-token]");
    if (!all.length) return;
    const at = document.activeElement?.dataset?.token;
    let next = at === undefined ? (step > 0 ? 0 : all.length - 1) : Number(at) + (step ?? 0);
    if (edge) next = event.key === "Home" ? 0 : all.length - 1;
    next = Math.min(all.length - 1, Math.max(0, next));
    event.preventDefault();
    all[next].focus();
    all[next].scrollIntoView({ block: "nearest" });
  }
}
