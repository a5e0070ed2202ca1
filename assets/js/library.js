// The recordings that came with the page, loaded when a lesson asks for one.

import { Run } from "./run.js";

const loaded = new Map();

async function fetchText(name) {
  const answer = await fetch(`specdemo/recordings/${name}.jsonl`);
  return answer.ok ? answer.text() : "";
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
  Promise.all([fetchText(name), fetchText(`${name}.plain`)]).then(([main, plain]) => {
    loaded.set(name, main ? { main: fold(main, "main"), plain: plain ? fold(plain, "plain") : null } : null);
    ready();
  });
  return undefined;
}
