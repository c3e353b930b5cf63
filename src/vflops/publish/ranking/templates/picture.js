// The two charts. All dots of a series are one path, so that ten thousand are as fast as ten.
const SVG = "http://www.w3.org/2000/svg";
const BOX = { left: 62, right: 468, top: 10, bottom: 222 };
const SERIES = 6;

function shape(name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, text] of Object.entries(attributes)) node.setAttribute(key, text);
  if (text !== undefined) node.textContent = text;
  return node;
}

// Ticks of a logarithmic axis: powers of ten, with steps in between if there are few of them.
function logTicks(low, high) {
  const ticks = [];
  const decades = Math.log10(high / low);
  const step = Math.max(1, Math.ceil(decades / 6));
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const digit of decades < 0.9 ? [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8] : decades < 1.5 ? [1, 2, 5] : [1]) {
      const tick = digit * 10 ** power;
      if (tick >= low * 0.999 && tick <= high * 1.001 && (step === 1 || power % step === 0)) ticks.push(tick);
    }
  }
  return ticks;
}

function powerTicks(low, high) {
  const ticks = [];
  const step = Math.max(1, Math.ceil(Math.log2(high / low) / 10));
  for (let power = Math.ceil(Math.log2(low)); power <= Math.ceil(Math.log2(high)); power += step) {
    if (2 ** power >= low * 0.999 && 2 ** power <= high * 1.001) ticks.push(2 ** power);
  }
  return ticks;
}

const DAY = 864e5;

// Whole days without duplicates: a short range has fewer days than ticks.
function dayTicks(low, high) {
  const days = [0, 1, 2, 3].map((part) => Math.round((low + ((high - low) * part) / 3) / DAY) * DAY);
  return [...new Set(days)];
}

const day = (text) => Date.parse(`${text}T00:00:00Z`);
const dayText = (time) => new Date(time).toISOString().slice(0, 10);

function range(numbers, spread) {
  let low = Infinity;
  let high = -Infinity;
  for (const number of numbers) {
    if (number < low) low = number;
    if (number > high) high = number;
  }
  return spread(low, high);
}

const PICTURES = {
  "over-time": {
    x: (row) => day(value("day", row)),
    spread: (low, high) => (low === high ? [low - DAY, high + DAY] : [low, high]),
    place: (x, low, high) => (x - low) / (high - low),
    ticks: dayTicks,
    label: dayText,
    record: true,
  },
  "over-ranks": {
    x: (row) => value("ranks", row),
    spread: (low, high) => [Math.max(low, 1) / 1.4, Math.max(high, 1) * 1.4],
    place: (x, low, high) => Math.log(x / low) / Math.log(high / low),
    ticks: powerTicks,
    label: (x) => String(x),
    record: false,
  },
};

// The colour of each device: the most frequent devices have their own, the others share one.
function seriesOf(rows) {
  const counts = new Map();
  for (const row of rows) {
    const name = value("device", row);
    counts.set(name, (counts.get(name) || 0) + 1);
  }
  const names = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([name]) => name);
  return { names, at: new Map(names.map((name, index) => [name, Math.min(index, SERIES)])) };
}

function draw(id, rows, series, unit, figure) {
  const picture = PICTURES[id];
  const svg = document.getElementById(id);
  svg.replaceChildren();
  const shown = rows.filter((row) => value(figure, row) > 0 && picture.x(row) > 0);
  svg.points = [];
  if (!shown.length) {
    svg.append(shape("text", { x: 240, y: 125, "text-anchor": "middle" }, "nothing to show"));
    return;
  }
  const [low, high] = range(shown.map(picture.x), picture.spread);
  const [least, most] = range(shown.map((row) => value(figure, row)), (a, b) => [a / 1.3, b * 1.3]);
  const toX = (x) => BOX.left + picture.place(x, low, high) * (BOX.right - BOX.left);
  const toY = (y) => BOX.bottom - (Math.log(y / least) / Math.log(most / least)) * (BOX.bottom - BOX.top);
  for (const tick of logTicks(least, most)) {
    svg.append(shape("path", { class: "grid", d: `M${BOX.left} ${toY(tick)}H${BOX.right}` }));
    svg.append(shape("text", { x: BOX.left - 6, y: toY(tick) + 4, "text-anchor": "end" }, quantity(tick, "").replace(/(\.\d*?)0+(?= |$)/, "$1").replace(/\.(?= |$)/, "")));
  }
  svg.append(shape("text", { class: "unit", transform: `translate(12 ${(BOX.top + BOX.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, unit));
  picture.ticks(low, high).forEach((tick, number, all) => {
    const anchor = picture.record && number === 0 ? "start" : picture.record && number === all.length - 1 ? "end" : "middle";
    svg.append(shape("text", { x: toX(tick), y: BOX.bottom + 18, "text-anchor": anchor }, picture.label(tick)));
  });
  svg.append(shape("path", { class: "grid", d: `M${BOX.left} ${BOX.top}V${BOX.bottom}H${BOX.right}` }));
  const dots = Array.from({ length: SERIES + 1 }, () => []);
  svg.points = shown.map((row) => {
    const point = { row, x: toX(picture.x(row)), y: toY(value(figure, row)) };
    dots[series.at.get(value("device", row))].push(`M${point.x.toFixed(1)} ${point.y.toFixed(1)}h0`);
    return point;
  });
  if (picture.record) svg.append(shape("path", { class: "record", d: records(svg.points) }));
  dots.forEach((parts, number) => {
    if (parts.length) svg.append(shape("path", { class: `dots d${number}`, d: parts.join("") }));
  });
  svg.append(shape("circle", { class: "mark", r: 6, cx: -20, cy: -20 }));
  svg.unit = unit;
  svg.ranking = figure === "score" ? "rank" : "energy_rank";
  svg.figure = figure;
}

// The best score so far, as a step line.
function records(points) {
  let path = "";
  let best = Infinity;
  for (const point of [...points].sort((a, b) => a.x - b.x || a.y - b.y)) {
    if (point.y >= best) continue;
    path += path ? `H${point.x.toFixed(1)}V${point.y.toFixed(1)}` : `M${point.x.toFixed(1)} ${point.y.toFixed(1)}`;
    best = point.y;
  }
  return path ? `${path}H${BOX.right}` : "M0 0";
}

// The dot nearest to the pointer; it is described beside the legend, and a click opens its system.
function nearest(svg, event) {
  const box = svg.getBoundingClientRect();
  const x = ((event.clientX - box.left) / box.width) * 480;
  const y = ((event.clientY - box.top) / box.height) * 250;
  let closest = null;
  let least = 900;
  for (const point of svg.points || []) {
    const distance = (point.x - x) ** 2 + (point.y - y) ** 2;
    if (distance < least) [closest, least] = [point, distance];
  }
  return closest;
}

function watch(svg) {
  const output = document.getElementById("pointed");
  svg.addEventListener("pointermove", (event) => {
    const point = nearest(svg, event);
    const mark = svg.querySelector(".mark");
    if (!mark) return;
    mark.setAttribute("cx", point ? point.x : -20);
    mark.setAttribute("cy", point ? point.y : -20);
    output.textContent = point
      ? `#${value(svg.ranking, point.row)} ${value("source", point.row)}, ${value("system", point.row)}: ${quantity(value(svg.figure, point.row), svg.unit)}, ${value("day", point.row)}`
      : "";
  });
  svg.addEventListener("click", (event) => {
    const point = nearest(svg, event);
    if (point) location.href = `systems/${value("page", point.row)}.html`;
  });
}
