// What "Compare" shows, as values: a row for each run, and the speed of plain decoding they are held against.

import { t } from "./words.js";
import { store } from "./store.js";

// Plain decoding runs before the other drafters and again after them. Further apart than this, its two
// speeds say that the machine changed meanwhile.
export const MARGIN = 0.15;
const SAMPLING = ["temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "max_new_tokens", "acceptance"];
const PLAIN = { "cmp:none": "compare_before", "cmp:again": "compare_after" };

const finished = (run) => Boolean(run?.finished && run.tokens.length);

// {rate, rates, apart}: tokens/s by the mean time of a token, each run's, and how much faster the
// faster one was; null until a plain run has finished. `apart` is null as long as there is only one.
export function plainSpeed() {
  const rates = Object.keys(PLAIN).map((slot) => store.runs.get(slot)).filter(finished).map((run) => run.figures().rate);
  if (!rates.length) return null;
  const mean = rates.reduce((sum, rate) => sum + 1 / rate, 0) / rates.length;
  return { rate: 1 / mean, rates, apart: rates.length > 1 ? Math.max(...rates) / Math.min(...rates) - 1 : null };
}

// The plain speed beside a run: of a file the plain run in it, where it holds one.
function baselineOf(slot) {
  if (!slot.startsWith("cmp:file")) return plainSpeed()?.rate ?? null;
  const own = store.runs.get(slot.replace("cmp:", "own:"));
  return finished(own) ? own.figures().rate : null;
}

export function rows() {
  const result = [];
  for (const [slot, run] of store.runs) {
    if (!slot.startsWith("cmp:") || !run.started) continue;
    const figures = run.figures();
    const file = slot.startsWith("cmp:file");
    const baseline = baselineOf(slot);
    const speedup = figures && baseline ? figures.rate / baseline : null;
    const plain = slot in PLAIN;
    const more = plain ? t(PLAIN[slot]) : file ? run.file ?? t("compare_file") : "";
    const name = more ? `${run.started.drafter} (${more})` : run.started.drafter;
    result.push({ slot, run, name, figures, baseline, speedup, plain, file, below: !plain && speedup !== null && speedup < 1 });
  }
  return result.sort((a, b) => a.file - b.file);
}

// In what the compared runs differ besides the drafter, as keys of words.
export function differences(all) {
  const traits = {
    prompt: ({ prompt }) => prompt, model: ({ model }) => model, dtype: ({ dtype }) => dtype,
    device: ({ device, environment }) => environment?.device_name ?? device, seed: ({ seed }) => seed,
    settings: ({ settings }) => SAMPLING.map((key) => settings?.[key] ?? null),
  };
  return Object.keys(traits).filter((key) => new Set(all.map(({ run }) => JSON.stringify(traits[key](run.started)))).size > 1);
}
