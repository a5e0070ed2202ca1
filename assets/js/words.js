// Words of the page in the reader's language. The sentences live in specdemo/ui/text, one file a language.

export const words = { lang: "en", all: { en: {} }, listeners: new Set() };

export function t(key, values = {}) {
  const table = words.all[words.lang] ?? words.all.en;
  const sentence = table[key] ?? words.all.en[key] ?? key;
  return sentence.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

export function setLanguage(lang) {
  if (!(lang in words.all) || lang === words.lang) return;
  words.lang = lang;
  document.documentElement.lang = lang === "zh" ? "zh-CN" : lang;
  for (const listener of words.listeners) listener();
}

const formats = new Map(); // by digits: to make one takes longer than to use it

export function number(value, digits = 1) {
  if (value === null || value === undefined || !Number.isFinite(value)) return t("not_available");
  if (!formats.has(digits)) formats.set(digits, new Intl.NumberFormat("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
  return formats.get(digits).format(value);
}

export function percent(value, digits = 0) {
  if (value === null || value === undefined || !Number.isFinite(value)) return t("not_available");
  return `${number(100 * value, digits)} %`;
}

// A probability: small ones keep two significant digits.
export function probability(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0 || value >= 0.1) return value.toFixed(2);
  if (value >= 0.001) return value.toFixed(4);
  return value.toExponential(1);
}

export function times(value) {
  return value === null || value === undefined || !Number.isFinite(value) ? t("not_available") : `${value.toFixed(2)}×`;
}
