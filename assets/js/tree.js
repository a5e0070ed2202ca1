// A proposal drawn as a tree (a chain is one branch), and the attention mask that goes with it.

import { s, typeSize, visible } from "./dom.js";
import { t } from "./words.js";

// Columns by depth, rows by leaf; the first child stays in its parent's row.
export function layout(nodes) {
  const children = nodes.map(() => []);
  const roots = [];
  nodes.forEach((node, i) => (node.parent < 0 ? roots : children[node.parent]).push(i));
  const places = nodes.map(() => ({ depth: 0, row: 0 }));
  let rows = 0;
  const place = (list, depth, row) => {
    list.forEach((i, k) => {
      places[i] = { depth, row: k === 0 ? row : (rows += 1) };
      place(children[i], depth + 1, places[i].row);
    });
  };
  place(roots, 1, 0);
  return { places, rows: rows + 1, depth: Math.max(0, ...places.map((p) => p.depth)) };
}

const MARK = { accepted: "✓", rejected: "✗", not_judged: "–" };

// `stage`: 0 drafted, 1 scored in one pass, 2 judged, 3 committed. `open(index)`: a node was chosen; null
// for a picture in which there is nothing to choose.
// `room`: the width there is; boxes shrink to it as far as they stay readable. `bars`: q and p in each box.
export function drawTree(round, stage, chosen, open, room = 900, bars = true) {
  const { places, rows, depth } = layout(round.nodes);
  const scale = typeSize(1);
  const space = room / scale;
  const dense = round.nodes.length > 24;
  const gap = space < 480 ? 8 : 14;
  const size = { w: Math.max(space < 480 ? 60 : 70, Math.min(104, Math.floor((space - 12) / (depth + 2)) - gap)), h: dense ? 30 : bars ? 46 : 40, gap };
  const side = dense ? 16 : 0; // of a low box the mark takes its right end
  const letters = Math.floor((size.w - 12 - side) / 7.6);
  const step = size.w + size.gap;
  const final = round.tokens.find((token) => token.node === null || token.node === undefined);
  const path = round.tokens.filter((token) => token.node !== null && token.node !== undefined).map((token) => token.node);
  const end = path.length ? places[path[path.length - 1]] : { depth: 0, row: 0 };
  const below = round.nodes.some((n, i) => places[i].depth === end.depth + 1 && places[i].row === end.row);
  const height = (rows + (below ? 1 : 0)) * (size.h + 8) + 26;
  const width = (depth + 2) * step + 10;
  const root = s("svg", { class: "tree", viewBox: `0 0 ${width} ${height}`, width: width * scale, height: height * scale, role: "group", "aria-label": t("tree_label") });
  const at = (p) => ({ x: 6 + p.depth * step, y: 22 + p.row * (size.h + 8) });
  if (stage >= 1) {
    const beam = s("rect", { class: "beam", x: 2, y: 16, width: (depth + 1) * step - size.gap + 8, height: rows * (size.h + 8) + 6, rx: 10 });
    root.append(beam, s("text", { class: "beam-name", x: 8, y: 11 }, t("beam", { rows: round.nodes.length + 1 })));
  }
  const box = (p, label, classes, more = {}) => {
    const { x, y } = at(p);
    const short = label.length > letters ? `${label.slice(0, letters - 1)}…` : label;
    return s("g", { class: `node ${classes}`, transform: `translate(${x} ${y})`, ...more },
      s("rect", { width: size.w, height: size.h, rx: 7 }),
      s("text", { x: (size.w - side) / 2, y: bars ? 20 : 17, "text-anchor": "middle" }, short));
  };
  const edge = (from, to, classes) => {
    const a = at(from);
    const b = at(to);
    const y1 = a.y + size.h / 2;
    const y2 = b.y + size.h / 2;
    const x1 = a.x + size.w;
    return s("path", { class: `edge ${classes}`, d: `M${x1} ${y1}C${x1 + size.gap} ${y1} ${b.x - size.gap} ${y2} ${b.x} ${y2}` });
  };
  const choice = (index, name, pressed) => (open ? {
    tabindex: "0", role: "button", "aria-label": name, "aria-pressed": String(pressed), data: { node: index },
    onclick: () => open(index),
    onkeydown: (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); open(index); } },
  } : { role: "img", "aria-label": name });
  const judged = stage >= 2;
  round.nodes.forEach((node, i) => {
    const from = node.parent < 0 ? { depth: 0, row: 0 } : places[node.parent];
    root.append(edge(from, places[i], judged ? round.verdicts[i].judgement : ""));
  });
  const last = round.before;
  const start = box({ depth: 0, row: 0 }, last === null ? t("prompt_end") : visible(last), "root");
  // The first box names the bars of the others.
  if (!dense && bars && round.nodes.length) {
    start.append(s("text", { class: "bar-key key-q", x: size.w - 8, y: 34, "text-anchor": "end" }, "q"));
    if (stage >= 1) start.append(s("text", { class: "bar-key", x: size.w - 8, y: 43, "text-anchor": "end" }, "p"));
  }
  root.append(start);
  round.nodes.forEach((node, i) => {
    const verdict = round.verdicts[i];
    const state = judged ? verdict.judgement : "open";
    const name = `${node.text} · ${judged ? t(verdict.judgement) : t("proposed")}`;
    const group = box(places[i], visible(node.text), `${state}${chosen === i ? " chosen" : ""}`, choice(i, name, chosen === i));
    if (!dense && bars) {
      const q = node.q === null || node.q === undefined ? 1 : node.q;
      group.append(s("rect", { class: "bar-q", x: 8, y: 28, width: Math.max(1, (size.w - 34) * q), height: 5 }));
      if (stage >= 1 && verdict.p !== null) group.append(s("rect", { class: "bar-p", x: 8, y: 35, width: Math.max(1, (size.w - 34) * verdict.p), height: 5 }));
    }
    if (judged) group.append(s("text", { class: "mark", x: size.w - 12, y: size.h - 8, "text-anchor": "middle" }, MARK[verdict.judgement]));
    root.append(group);
  });
  if (stage >= 3 && final) {
    const place = { depth: end.depth + 1, row: below ? rows : end.row };
    root.append(edge(end, place, `final f-${final.origin}`));
    root.append(box(place, visible(final.text), `final f-${final.origin}${chosen === "final" ? " chosen" : ""}`,
      choice("final", `${final.text} · ${t(`origin_${final.origin}`)}`, chosen === "final")));
  }
  return root;
}

// Row i may look at column j: itself and its ancestors. The root (last committed token) is row 0.
// `chosen`: the node whose row is marked.
export function drawMask(nodes, chosen = null) {
  const count = nodes.length + 1;
  const cell = Math.max(3, Math.min(16, Math.floor(240 / count)));
  const size = cell * count;
  const root = s("svg", { class: "mask", viewBox: `0 0 ${size + 2} ${size + 2}`, width: typeSize(size + 2), height: typeSize(size + 2), role: "img", "aria-label": t("mask_label", { rows: count }) });
  root.append(s("rect", { class: "mask-frame", x: 0.5, y: 0.5, width: size + 1, height: size + 1 }));
  if (typeof chosen === "number") root.append(s("rect", { class: "mask-row", x: 1, y: 1 + (chosen + 1) * cell, width: size, height: cell - 1 }));
  for (let row = 0; row < count; row += 1) {
    for (let at = row; at >= 0; at = at === 0 ? -1 : nodes[at - 1].parent + 1) {
      root.append(s("rect", { class: at === row ? "seen self" : "seen", x: 1 + at * cell, y: 1 + row * cell, width: cell - 1, height: cell - 1 }));
    }
  }
  return root;
}
