// The page shows what its address says: the part after # is the state of the page.
const PAGE = 50;
const PRINTED = 2000;
const VIEWS = ["ranked", "energy", "apart", "published"];
// The two rankings: their lists, the columns of the rows' lists and ranks, and the figure that ranks.
const RANKINGS = {
  ranked: { facets: DATA.facets, lists: DATA.lists, list: "list", rank: "rank", figure: "score", per: "", columns: COLUMNS },
  energy: { facets: DATA.energy_facets, lists: DATA.energy_lists, list: "energy_list", rank: "energy_rank", figure: "per_watt", per: "/W", columns: ENERGY_COLUMNS },
};
const find = (id) => document.getElementById(id);
const state = {};
let printing = false;
let drawn = null; // the selection that the charts show; sorting and paging do not change it

// The strings that a search looks at, converted to lower case once.
const lower = (column) => ({ words: column.words.map((word) => word.toLowerCase()), at: column.at });
const SEARCHED = ["source", "system", "framework", "device", "audit"].map((key) => lower(DATA.rows[key]));
const APART_SEARCHED = ["source", "system", "workload", "reason"].map((key) => lower(DATA.apart[key]));
const collator = new Intl.Collator("en", { numeric: true });

function readState() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  for (const key of Object.keys(state)) delete state[key];
  for (const [key, text] of parameters) state[key] = text;
  if (!VIEWS.includes(state.view)) state.view = DATA.lists.length || !DATA.apart.place.length ? "ranked" : "apart";
  const column = chosen().columns.find(({ key }) => key === (state.sort || "").replace("-", ""));
  if (!column) state.sort = chosen().rank;
}

const chosen = () => RANKINGS[state.view] || RANKINGS.ranked;

function stateText() {
  const parameters = new URLSearchParams();
  for (const facet of DATA.energy_facets) if (state[facet]) parameters.set(facet, state[facet]);
  for (const key of ["q", "device", "best"]) if (state[key]) parameters.set(key, state[key]);
  if (state.sort !== chosen().rank) parameters.set("sort", state.sort);
  if (Number(state.page) > 1) parameters.set("page", state.page);
  if (state.view !== "ranked") parameters.set("view", state.view);
  return `#${parameters}`;
}

function change(changes) {
  Object.assign(state, { page: "1" }, changes);
  history.replaceState(null, "", stateText());
  show();
}

// The list that matches most facets of the state; the facet that was changed last has priority.
function chosenList(wanted = state, first = null) {
  const { facets, lists } = chosen();
  const agreement = (list) =>
    list.values.reduce((sum, text, at) => sum + (wanted[facets[at]] === text) * (facets[at] === first ? 100 : 1), 0);
  let best = 0;
  lists.forEach((list, number) => {
    if (agreement(list) > agreement(lists[best])) best = number;
  });
  return best;
}

function chooseFacet(facet, text) {
  const { facets, lists } = chosen();
  const list = lists[chosenList({ ...state, [facet]: text }, facet)];
  change({ ...Object.fromEntries(facets.map((name, at) => [name, list.values[at]])), device: "" });
}

function showFacets(list) {
  find("facets").replaceChildren(
    ...chosen().facets.map((facet, at) => {
      const words = [...new Set(chosen().lists.map((other) => other.values[at]))].sort(collator.compare);
      if (words.length === 1) return element("label", {}, facet, element("span", {}, words[0]));
      const select = element("select", { "data-facet": facet });
      select.append(...words.map((word) => element("option", { value: word }, word)));
      select.value = list.values[at];
      select.addEventListener("change", () => chooseFacet(facet, select.value));
      return element("label", {}, facet, select);
    }),
  );
}

function matches(columns, extra, query, row) {
  return query.every((word) => columns.some((column) => column.words[column.at[row]].includes(word)) || extra(row).toLowerCase().includes(word));
}

const wordsOf = (text) => (text || "").toLowerCase().split(/\s+/).filter(Boolean);

function filtered(inList) {
  const query = wordsOf(state.q);
  let rows = inList;
  if (state.device) rows = rows.filter((row) => value("device", row) === state.device);
  if (query.length) rows = rows.filter((row) => matches(SEARCHED, (index) => value("run", index), query, row));
  if (state.best) {
    const seen = new Set();
    rows = rows.filter((row) => !seen.has(value("page", row)) && seen.add(value("page", row)));
  }
  return rows;
}

// Rows are in the order of rank; unknown values come last in either direction.
function sorted(rows) {
  const down = state.sort.startsWith("-");
  const key = state.sort.replace("-", "");
  if (key === chosen().rank && !down) return rows;
  const column = DATA.rows[key];
  let order = (row) => column[row];
  if (!Array.isArray(column)) {
    const places = column.words.map((_, number) => number).sort((a, b) => collator.compare(column.words[a], column.words[b]));
    const rankOf = new Map(places.map((number, place) => [number, place]));
    order = (row) => rankOf.get(column.at[row]);
  }
  const sign = down ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [x, y] = [order(a), order(b)];
    if (x === null || y === null) return (x === null) - (y === null) || a - b;
    return sign * (x - y) || a - b;
  });
}

function cell(column, row, unit) {
  const text = element("bdi", {}, String(column.show(row, unit)));
  const href = column.href && column.href(row);
  const td = element("td", { class: column.kind, "data-label": column.title(unit) });
  const note = column.note && column.note(row);
  if (note) td.append(element("span", {}, text, element("small", {}, element("bdi", {}, note))));
  else td.append(href ? element("a", { href }, text) : text);
  return td;
}

function fill(table, columns, rows, unit) {
  const body = element("tbody");
  for (const row of rows) body.append(element("tr", {}, ...columns.map((column) => cell(column, row, unit))));
  find(table).tBodies[0].replaceWith(body);
}

function heads(columns, unit) {
  const down = state.sort.startsWith("-");
  const key = state.sort.replace("-", "");
  const headCells = columns.map((column) => {
    const button = element("button", { "data-sort": column.key }, column.title(unit));
    button.addEventListener("click", () => {
      const descending = column.key === key ? !down : column.first < 0;
      change({ sort: `${descending ? "-" : ""}${column.key}` });
    });
    const head = element("th", { class: column.kind.split(" ")[0] === "n" ? "n" : "", scope: "col" }, button);
    if (column.key === key) head.setAttribute("aria-sort", down ? "descending" : "ascending");
    return head;
  });
  const focused = document.activeElement && document.activeElement.dataset.sort;
  find("table").tHead.replaceChildren(element("tr", {}, ...headCells));
  if (focused) find("table").querySelector(`[data-sort="${focused}"]`).focus();
}

function pageOf(rows, pager, key = "page") {
  const pages = Math.max(1, Math.ceil(rows.length / PAGE));
  const page = Math.min(Math.max(1, Math.trunc(Number(state[key])) || 1), pages);
  const turn = (text, to) => {
    const button = element("button", {}, text);
    button.disabled = to < 1 || to > pages;
    button.addEventListener("click", () => change({ page: state.page, [key]: String(to) }));
    return button;
  };
  find(pager).replaceChildren(...(pages > 1 ? [turn("previous", page - 1), `page ${page} of ${pages}`, turn("next", page + 1)] : []));
  return printing ? rows.slice(0, PRINTED) : rows.slice((page - 1) * PAGE, page * PAGE);
}

const grouped = (number) => number.toLocaleString("en");

function showNothing() {
  find("count").textContent = state.view === "energy" ? "No result has valid evidence of power yet." : "Nothing ranks yet.";
  for (const id of ["facets", "legend", "pager"]) find(id).replaceChildren();
  for (const id of Object.keys(PICTURES)) draw(id, [], seriesOf([]), "", "score");
  drawn = null;
  heads(chosen().columns, "VFLOPS");
  find("table").tBodies[0].replaceChildren();
}

// The results that rank by performance but not by energy.
function showWithout() {
  const rows = DATA.rows.run.map((_, row) => row).filter((row) => value("energy_rank", row) === null);
  find("without").hidden = state.view !== "energy" || !rows.length;
  if (find("without").hidden) return;
  find("without-count").textContent = `${grouped(rows.length)} ${rows.length === 1 ? "result" : "results"} of all performance lists`;
  find("without-table").tHead.replaceChildren(element("tr", {}, ...WITHOUT_COLUMNS.map((column) => element("th", { scope: "col" }, column.title()))));
  fill("without-table", WITHOUT_COLUMNS, pageOf(rows, "without-pager", "without"));
}

function showRanked() {
  const ranking = chosen();
  find("energy-note").hidden = state.view !== "energy";
  find("ranked").setAttribute("aria-labelledby", `tab-${state.view}`);
  for (const caption of document.querySelectorAll("#ranked [data-figure]")) caption.textContent = state.view === "energy" ? "Performance per watt" : "Performance";
  showWithout();
  const number = chosenList();
  const list = ranking.lists[number];
  if (!list) return showNothing();
  const inList = [];
  DATA.rows[ranking.list].forEach((listNumber, row) => listNumber === number && inList.push(row));
  inList.sort((a, b) => DATA.rows[ranking.rank][a] - DATA.rows[ranking.rank][b] || a - b);
  const series = seriesOf(inList);
  const rows = filtered(inList);
  showFacets(list);
  const all = element("option", { value: "" }, "all accelerators");
  find("device").replaceChildren(all, ...series.names.map((name) => element("option", { value: name }, name)));
  find("device").value = series.names.includes(state.device) ? state.device : "";
  find("search").value = state.q || "";
  find("best").checked = Boolean(state.best);
  find("count").textContent = `${grouped(rows.length)} of ${grouped(inList.length)} ${inList.length === 1 ? "result" : "results"} in this list`;
  const selection = JSON.stringify([state.view, number, state.q, state.device, state.best]);
  if (selection !== drawn) showPictures(rows, series, `${list.unit}${ranking.per}`, ranking.figure);
  drawn = selection;
  const columns = ranking.columns.filter(({ only }) => !only || only === list.unit);
  heads(columns, list.unit);
  fill("table", columns, pageOf(sorted(rows), "pager"), list.unit);
}

function showPictures(rows, series, unit, figure) {
  for (const id of Object.keys(PICTURES)) draw(id, rows, series, unit, figure);
  const named = series.names.slice(0, SERIES).map((name, at) => element("span", {}, element("i", { class: `d${at}` }, "●"), element("bdi", {}, name)));
  if (series.names.length > SERIES) named.push(element("span", {}, element("i", { class: `d${SERIES}` }, "●"), "others"));
  find("legend").replaceChildren(...named);
}

function showApart() {
  const query = wordsOf(state.q);
  const rows = DATA.apart.place.map((_, row) => row).filter((row) => matches(APART_SEARCHED, (index) => apartValue("place", index), query, row));
  find("apart-search").value = state.q || "";
  find("apart-count").textContent = `${grouped(rows.length)} of ${grouped(DATA.apart.place.length)} submissions`;
  find("apart-table").tHead.replaceChildren(element("tr", {}, ...APART_COLUMNS.map((column) => element("th", { scope: "col" }, column.title()))));
  fill("apart-table", APART_COLUMNS, pageOf(rows, "apart-pager"));
}

function show() {
  for (const view of VIEWS) {
    if (find(view)) find(view).hidden = view !== state.view;
    find(`tab-${view}`).setAttribute("aria-selected", view === state.view);
  }
  find("ranked").hidden = !RANKINGS[state.view];
  if (RANKINGS[state.view]) showRanked();
  if (state.view === "apart") showApart();
  find("link").setAttribute("href", stateText());
}

for (const view of VIEWS) find(`tab-${view}`).addEventListener("click", () => change({ view, q: "", sort: (RANKINGS[view] || RANKINGS.ranked).rank, without: "1" }));
for (const id of ["search", "apart-search"]) find(id).addEventListener("input", (event) => change({ q: event.target.value }));
find("device").addEventListener("change", (event) => change({ device: event.target.value }));
find("best").addEventListener("change", (event) => change({ best: event.target.checked ? "1" : "" }));
for (const id of Object.keys(PICTURES)) watch(find(id));
for (const [name, now] of [["beforeprint", true], ["afterprint", false]]) {
  addEventListener(name, () => {
    printing = now;
    show();
  });
}
addEventListener("hashchange", () => {
  readState();
  show();
});
readState();
show();
