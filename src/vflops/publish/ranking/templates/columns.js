// The columns of the tables: their data, and how values are shown.
const DATA = JSON.parse(document.getElementById("data").textContent);

// A column of strings is stored as its distinct strings and one index per row.
const reader = (columns) => (key, row) => {
  const column = columns[key];
  return Array.isArray(column) ? column[row] : column.words[column.at[row]];
};
const value = reader(DATA.rows);
const apartValue = reader(DATA.apart);

const PREFIXES = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

// A number as it will be shown, so that 999,999 W are 1.00 MW and 0.9996 s are 1 s.
const rounded = (number) => Number(number.toPrecision(3));

function quantity(number, unit) {
  if (number === null) return "—";
  const [scale, prefix] = PREFIXES.find(([scale]) => rounded(number) >= scale) || [1, ""];
  const scaled = number / scale;
  const shown = rounded(scaled) < 1 ? String(rounded(scaled)) : scaled.toPrecision(3);
  return `${shown.includes("e") ? scaled.toExponential(2) : shown} ${prefix}${unit}`.trim();
}

// The same format as on all other pages: 12.4 ms, 3.2 s, 4 min 05 s.
function duration(seconds) {
  if (seconds === null) return "—";
  if (rounded(seconds) < 1) return `${rounded(1e3 * seconds)} ms`;
  if (rounded(seconds) < 60) return `${rounded(seconds)} s`;
  const whole = Math.round(seconds);
  return `${Math.trunc(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
}

const plain = (text) => (text === null || text === "" ? "—" : String(text));
const devices = (row) => {
  const count = value("accelerators", row);
  const ranks = value("ranks", row);
  const nodes = value("nodes", row);
  const where = nodes > 1 ? (count && count % nodes === 0 ? ` (${nodes} nodes × ${count / nodes})` : `, ${nodes} nodes`) : "";
  return (count ? `${value("device", row)} × ${count}` : `${ranks} ${ranks === 1 ? "process" : "processes"}, no accelerator`) + where;
};
const regulated = (row) => (value("regulated", row) === null ? "not defined for an error of 0" : quantity(value("regulated", row), "OPS"));

const audited = (row) => (value("audit", row) ? `audited by ${value("audit", row)}` : "");

// `first` is the sort direction of the first click, which puts the best on top; `only` is the unit of
// the lists that have the column; `note` is a second, smaller line.
const COLUMNS = [
  { key: "rank", title: () => "#", kind: "n rank", show: (row) => value("rank", row), first: 1 },
  { key: "source", title: () => "source", kind: "word source", show: (row) => value("source", row), first: 1 },
  { key: "system", title: () => "system", kind: "name", show: (row) => value("system", row), href: (row) => `systems/${value("page", row)}.html`, first: 1 },
  { key: "score", title: (unit) => unit, kind: "n score", show: (row, unit) => quantity(value("score", row), unit), first: -1 },
  { key: "published", only: "VFLOPS", title: () => "as published", kind: "n", show: (row) => (value("published", row) === null ? "unbounded" : quantity(value("published", row), "")), first: -1 },
  { key: "regulated", only: "OPS", title: () => "regulated score", kind: "n", show: regulated, first: -1 },
  { key: "time_s", title: () => "time", kind: "n", show: (row) => duration(value("time_s", row)), first: 1 },
  { key: "to_target_s", title: () => "to target", kind: "n", show: (row) => duration(value("to_target_s", row)), first: 1 },
  { key: "quality", title: () => "quality", kind: "n", show: (row) => plain(value("quality", row)), first: -1 },
  { key: "ranks", title: () => "accelerators", kind: "word", show: devices, first: -1 },
  { key: "framework", title: () => "framework", kind: "word", show: (row) => plain(value("framework", row)), first: 1 },
  { key: "per_watt", title: (unit) => `${unit}/W`, kind: "n", show: (row) => quantity(value("per_watt", row), ""), first: -1 },
  { key: "efficiency", title: () => "efficiency", kind: "n", show: (row) => (value("efficiency", row) === null ? "—" : `${(100 * value("efficiency", row)).toFixed(1)} %`), first: -1 },
  { key: "tally", title: () => "validity", kind: "good", show: (row) => `${value("tally", row)}${value("signed", row) ? ", signed" : ""}${value("challenge", row) ? `, ${value("challenge", row)}` : ""}${value("repeats", row) > 1 ? `, ${value("repeats", row)} repeats` : ""}`, note: audited, first: 1 },
  { key: "day", title: () => "day", kind: "n", show: (row) => plain(value("day", row)), first: -1 },
];

const named = (...keys) => COLUMNS.filter(({ key }) => keys.includes(key));
const ENERGY_COLUMNS = [
  { key: "energy_rank", title: () => "#", kind: "n rank", show: (row) => value("energy_rank", row), first: 1 },
  ...named("source", "system"),
  { key: "per_watt", title: (unit) => `${unit}/W`, kind: "n score", show: (row, unit) => quantity(value("per_watt", row), `${unit}/W`), first: -1 },
  { key: "power_w", title: () => "power", kind: "n", show: (row) => quantity(value("power_w", row), "W"), first: 1 },
  { key: "method", title: () => "measured by", kind: "word", show: (row) => plain(value("method", row)), first: 1 },
  { key: "score", title: (unit) => unit, kind: "n", show: (row, unit) => quantity(value("score", row), unit), first: -1 },
  { key: "rank", title: () => "# by performance", kind: "n", show: (row) => value("rank", row), first: 1 },
  ...named("published", "regulated", "time_s", "quality", "ranks", "efficiency", "tally", "day"),
];
const WITHOUT_COLUMNS = [
  ...named("source", "system"),
  { key: "workload", title: () => "workload", kind: "", show: (row) => DATA.lists[value("list", row)].values[DATA.facets.indexOf("workload")] },
  { key: "day", title: () => "day", kind: "n", show: (row) => plain(value("day", row)) },
  { key: "run", title: () => "run", kind: "mono", show: (row) => value("run", row) },
  { key: "no_energy", title: () => "reason", kind: "reason", show: (row) => value("no_energy", row) },
];

const APART_COLUMNS = [
  { key: "source", title: () => "source", kind: "", show: (row) => apartValue("source", row) },
  { key: "system", title: () => "system", kind: "name", show: (row) => plain(apartValue("system", row)), href: (row) => (apartValue("page", row) ? `systems/${apartValue("page", row)}.html` : null) },
  { key: "workload", title: () => "workload", kind: "", show: (row) => plain(apartValue("workload", row)) },
  { key: "day", title: () => "day", kind: "n", show: (row) => plain(apartValue("day", row)) },
  { key: "place", title: () => "submission", kind: "mono", show: (row) => apartValue("place", row) },
  { key: "reason", title: () => "reason", kind: "reason", show: (row) => apartValue("reason", row) },
];

// Text is inserted as text, never as HTML; <bdi> isolates its writing direction.
function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, text] of Object.entries(attributes)) node.setAttribute(key, text);
  node.append(...children);
  return node;
}
