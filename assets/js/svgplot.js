// A small chart drawn by hand: lines, bars and marks with direct labels. Colours come from the style sheet.

import { s } from "./dom.js";

function nice(span, count) {
  const raw = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 2.5, 5, 10].map((m) => m * power).find((step) => step >= raw * 0.999);
}

export function ticks(low, high, count = 5) {
  if (!(high > low)) return [low];
  const step = nice(high - low, count);
  const result = [];
  for (let x = Math.ceil(low / step - 1e-9) * step; x <= high + step * 1e-9; x += step) result.push(Number(x.toPrecision(12)));
  return result;
}

// On a phone a chart is drawn as wide as the screen: a wider one, made smaller, has letters too small to read.
const PHONE = 362;

export function narrow() {
  return window.innerWidth <= 640;
}

// spec: {width, height, label, x: {min, max, label, ticks, format}, y: {...}, items: [...]}
// items: {kind: "line" | "dots" | "bars" | "area" | "rule" | "text", ...}, colours by CSS variable name.
export function plot(spec) {
  const width = narrow() ? Math.min(PHONE, spec.width ?? PHONE) : spec.width ?? 560;
  const height = spec.height ?? 260;
  const margin = { left: 46, right: 14, top: 14, bottom: 40, ...spec.margin };
  const w = width - margin.left - margin.right;
  const hgt = height - margin.top - margin.bottom;
  const x = (v) => margin.left + (w * (v - spec.x.min)) / (spec.x.max - spec.x.min || 1);
  const y = (v) => margin.top + hgt - (hgt * (v - spec.y.min)) / (spec.y.max - spec.y.min || 1);
  const root = s("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spec.label ?? "" });
  for (const v of spec.y.ticks ?? ticks(spec.y.min, spec.y.max, 4)) {
    root.append(
      s("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y(v), y2: y(v) }),
      s("text", { class: "tick", x: margin.left - 6, y: y(v) + 4, "text-anchor": "end" }, spec.y.format ? spec.y.format(v) : String(v)));
  }
  for (const v of spec.x.ticks ?? ticks(spec.x.min, spec.x.max, narrow() ? 4 : 6)) {
    const place = spec.x.slant ? { "text-anchor": "end", transform: `translate(${x(v) + 4} ${height - margin.bottom + 14}) rotate(-38)` } : { "text-anchor": "middle", x: x(v), y: height - margin.bottom + 16 };
    root.append(s("text", { class: "tick", ...place }, spec.x.format ? spec.x.format(v) : String(v)));
  }
  root.append(
    s("line", { class: "axis", x1: margin.left, x2: width - margin.right, y1: height - margin.bottom, y2: height - margin.bottom }),
    s("text", { class: "axis-name", x: margin.left + w / 2, y: height - 6, "text-anchor": "middle" }, spec.x.label ?? ""),
    s("text", { class: "axis-name", transform: `translate(12 ${margin.top + hgt / 2}) rotate(-90)`, "text-anchor": "middle" }, spec.y.label ?? ""));
  for (const item of spec.items) root.append(...draw(item, x, y, { margin, width, height }));
  return root;
}

function path(points, x, y, step) {
  let d = "";
  points.forEach(([px, py], i) => {
    if (i === 0) d += `M${x(px).toFixed(1)} ${y(py).toFixed(1)}`;
    else d += step ? `H${x(px).toFixed(1)}V${y(py).toFixed(1)}` : `L${x(px).toFixed(1)} ${y(py).toFixed(1)}`;
  });
  return d;
}

function draw(item, x, y, frame) {
  const stroke = `var(${item.colour ?? "--ink-soft"})`;
  const parts = [];
  if (item.kind === "line" && item.points.length) {
    parts.push(s("path", { d: path(item.points, x, y, item.step), fill: "none", style: `stroke:${stroke}`, "stroke-width": item.width ?? 2.2, "stroke-dasharray": item.dash ?? null, "stroke-linejoin": "round" }));
    const [lx, ly] = item.points[item.points.length - 1];
    if (item.name) parts.push(label(item.name, x(lx) + (item.anchor === "end" ? 0 : 5), y(ly) - 6, item.ink, item.anchor ?? "end"));
  } else if (item.kind === "dots") {
    for (const [px, py] of item.points) parts.push(s("circle", { cx: x(px), cy: y(py), r: item.r ?? 4, style: `fill:${stroke}` }));
    if (item.each) for (const [px, py] of item.points) parts.push(label(item.each(py), x(px), y(py) - 10, item.ink, "middle"));
    if (item.name && item.points.length) parts.push(label(item.name, x(item.points[0][0]), y(item.points[0][1]) - 9, item.ink, item.anchor ?? "middle"));
  } else if (item.kind === "bars") {
    for (const [px, py] of item.points) {
      const half = item.half ?? 0.35;
      const left = x(px - half + (item.shift ?? 0));
      const right = x(px + half + (item.shift ?? 0));
      const shape = item.outline ? `fill:none;stroke:${stroke};stroke-width:2` : `fill:${stroke}`;
      parts.push(s("rect", { x: left, y: y(py), width: Math.max(0, right - left), height: Math.max(0, y(0) - y(py)), style: shape, rx: 1.5 }));
    }
  } else if (item.kind === "rule") {
    const across = item.y !== undefined;
    const at = across ? { x1: frame.margin.left, x2: frame.width - frame.margin.right, y1: y(item.y), y2: y(item.y) } : { x1: x(item.x), x2: x(item.x), y1: frame.margin.top, y2: frame.height - frame.margin.bottom };
    parts.push(s("line", { ...at, style: `stroke:${stroke}`, "stroke-dasharray": item.dash ?? "5 4", "stroke-width": 1.2 }));
    if (item.name) parts.push(across ? label(item.name, at.x2, at.y1 - 5, item.ink, "end") : label(item.name, at.x1 + 4, at.y1 + 12, item.ink, "start"));
  }
  if (item.kind === "names") parts.push(...names(item.names, x, y, frame));
  return parts;
}

// Names at the right edge, each at the height of its line's last point, moved apart where they would meet.
function names(list, x, y, frame) {
  const places = list.map((one) => ({ ...one, y: y(one.at[1]) })).sort((a, b) => a.y - b.y);
  const apart = 15;
  const bottom = frame.height - frame.margin.bottom;
  for (let i = 1; i < places.length; i += 1) places[i].y = Math.max(places[i].y, places[i - 1].y + apart);
  for (let i = places.length - 1, most = bottom; i >= 0; i -= 1, most -= apart) places[i].y = Math.min(places[i].y, most);
  const edge = frame.width - frame.margin.right + 14;
  return places.flatMap((one) => [
    s("line", { class: "leader", x1: x(one.at[0]) + 4, y1: y(one.at[1]), x2: edge - 3, y2: one.y }),
    label(one.name, edge, one.y + 4, one.ink, "start")]);
}

function label(text, x, y, ink = "--ink", anchor = "end") {
  return s("text", { class: "direct", x, y, "text-anchor": anchor, style: `fill:var(${ink})` }, text);
}
