// The likeliest tokens at one place, as a table with bars.

import { h, visible } from "./dom.js";
import { t, probability } from "./words.js";

// The likeliest tokens at a place with p, q and, after a refusal, the residual.
export function alternativesTable(token, about) {
  const rows = token?.alternatives ?? [];
  if (!rows.length) return h("p", { class: "hint" }, t("no_alternatives"));
  const withQ = rows.some((x) => x.q !== null && x.q !== undefined);
  const withR = rows.some((x) => x.residual !== null && x.residual !== undefined);
  const columns = [["p", "bar-p", t("col_p")], ...(withQ ? [["q", "bar-q", t("col_q")]] : []), ...(withR ? [["residual", "bar-r", t("col_residual")]] : [])];
  const cell = (value, kind) => h("td", {},
    h("span", { class: `bar ${kind}`, style: `width:${Math.round(100 * Math.min(1, value ?? 0))}%`, "aria-hidden": "true" }),
    h("span", { class: "bar-value" }, probability(value)));
  return h("table", { class: "alternatives" },
    h("caption", {}, t(withR ? "alternatives_residual" : "alternatives")),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("col_token")), ...columns.map(([, , name]) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, ...rows.map((row) => h("tr", { class: row.id === token.id ? "taken" : row.id === about.id ? "about" : "" },
      h("th", { scope: "row" }, visible(row.text), row.id === token.id ? h("span", { class: `tag ink-${token.origin}` }, ` ${t(`origin_${token.origin}`)}`) : null),
      ...columns.map(([field, kind]) => cell(row[field], kind))))));
}
