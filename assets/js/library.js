// The recordings that came with the page, loaded when a lesson asks for one.

import { Run } from "./run.js";

const loaded = new Map();
let index; // what there is, by name: asked once, so that nothing is asked for that is not there

async function fetchText(name) {
  const answer = await fetch(`specdemo/recordings/${name}.jsonl`);
  return answer.ok ? answer.text() : "";
}

// Texts of a recording and of plain decoding beside it; empty where there is none.
export async function texts(name) {
  index ??= fetch("specdemo/recordings/index.json").then((answer) => (answer.ok ? answer.json() : {}));
  const entry = (await index)[name];
  if (!entry) return ["", ""];
  return Promise.all([fetchText(name), entry.plain ? fetchText(`${name}.plain`) : ""]);
}

function fold(text, slot) {
  const run = new Run(slot);
  for (const line of text.split("\n")) if (line) run.push(JSON.parse(line), line);
  return run;
}

// {main, plain} of a recording, null where it was not made; `ready` is called once it is there.
export function recording(name, ready) {
  if (loaded.has(name)) return loaded.get(name);
  loaded.set(name, undefined);
  texts(name).then(([main, plain]) => {
    loaded.set(name, main ? { main: fold(main, "main"), plain: plain ? fold(plain, "plain") : null } : null);
  }).catch((fault) => {
    console.error(fault);
    loaded.set(name, null);
  }).then(ready);
  return undefined;
}
