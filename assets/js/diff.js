// Two runs of one prompt: where their tokens part, and a text with all that comes after marked.

import { h, visible } from "./dom.js";

// How many tokens of two runs are the same from the start.
export function common(a, b) {
  let i = 0;
  while (i < a.length && i < b.length && a[i].id === b[i].id) i += 1;
  return i;
}

// The text of a run under its title; from token `at` on it is marked.
export function textFrom(title, run, at) {
  const before = run.tokens.slice(0, at).map((x) => x.text).join("");
  const after = run.tokens.slice(at).map((x) => x.text).join("");
  return h("section", {}, h("h3", {}, title),
    h("p", { class: "plain-text", tabindex: "0" }, before, after || at < run.tokens.length ? h("mark", {}, after || visible("")) : null));
}
