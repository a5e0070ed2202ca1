// What became of one token, in a place of fixed height so that nothing moves while reading.

import { h, visible } from "./dom.js";
import { t, probability } from "./words.js";

export class Inspector {
  constructor() {
    this.box = h("div", { class: "inspector" });
    this.token = null;
    this.render();
  }

  show(token, element) {
    if (this.token === token) return;
    this.token = token;
    this.marked?.classList.remove("marked");
    this.marked = element;
    element?.classList.add("marked");
    this.render();
  }

  clear() {
    this.show(null, null);
  }

  render() {
    const token = this.token;
    if (!token) {
      this.box.replaceChildren(h("p", { class: "hint" }, t("inspect_hint")));
      return;
    }
    const verdict = token.node === null || token.node === undefined ? null : token.round.verdicts[token.node];
    const facts = [
      [t("round"), token.round.number],
      ["p", probability(token.p)],
      ["q", token.q === null || token.q === undefined ? (token.round.remote ? t("server_missing_short") : token.node == null ? "–" : t("q_one_hot")) : probability(token.q)],
    ];
    if (verdict) {
      facts.push(["min(1, p/q)", probability(verdict.threshold)]);
      facts.push(["u", verdict.draw === null ? t("no_draw") : probability(verdict.draw)]);
    }
    facts.push([t("token_id"), token.id]);
    this.box.replaceChildren(
      h("p", { class: "what" },
        h("span", { class: `token o-${token.origin}` }, visible(token.text)),
        " ",
        h("b", { class: `ink-${token.origin}` }, t(`origin_${token.origin}`)),
        " · ",
        t(`origin_${token.origin}_why`),
        token.certain === false ? ` ${t("uncertain")}` : ""),
      h("dl", { class: "facts" }, ...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(value))))),
    );
  }
}
