// One self-contained HTML file of the runs on show, made from the template that the server offers.

import { store } from "./store.js";

export const DATA_MARK = "__SPECDEMO_DATA__";

// JSON inside a script element: no "<" may occur, or a text could end the element.
export function embed(value) {
  return JSON.stringify(value).replaceAll("<", "\\u003c").replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");
}

export async function exportHtml(slots, lang) {
  const runs = {};
  for (const slot of slots) {
    const run = store.runs.get(slot);
    if (run?.lines.length) runs[slot] = run.lines;
  }
  const answer = await fetch("specdemo/export-template.html");
  if (!answer.ok) return null;
  const [before, after] = (await answer.text()).split(DATA_MARK);
  return before + embed({ lang, runs }) + after;
}
