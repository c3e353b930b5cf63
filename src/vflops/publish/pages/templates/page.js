"use strict";
// Draws the charts of the page as wide as their place. No eval: Vega interprets its expressions.
(() => {
  const NARROW = 600;
  const OPTIONS = {
    mode: "vega-lite", ast: true, renderer: "svg", actions: false, defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
  };
  const places = [...document.querySelectorAll(".chart")];
  const drawings = new Map();

  // On a phone: legends in two columns, fewer ticks, and a finger that scrolls the page.
  function narrowed(part) {
    if (Array.isArray(part)) return part.map(narrowed);
    if (part === null || typeof part !== "object") return part;
    const made = {};
    const long = (part.scale?.domain ?? []).some((name) => String(name).length > 22);
    for (const [key, value] of Object.entries(part)) {
      if (key === "data" || key === "datasets") made[key] = value;
      else if (key === "legend" && value) made[key] = { ...value, orient: "top", columns: long ? 1 : 2, labelLimit: long ? 290 : 140 };
      else if (key === "tickCount") made[key] = Math.min(value, 5);
      else if (key !== "params") made[key] = narrowed(value);
    }
    return made;
  }

  function fitted(given, room) {
    const narrow = room < NARROW;
    const { hconcat, ...rest } = narrow ? narrowed(given) : given;
    const spec = { ...rest, background: "transparent" };
    if (hconcat && narrow) return { ...spec, vconcat: hconcat.map((each) => ({ ...each, width: room - 70 })) };
    if (hconcat) return { ...spec, hconcat };
    if (spec.width > room - 120) Object.assign(spec, { width: room, autosize: { type: "fit-x", contains: "padding" } });
    return spec;
  }

  async function draw(place) {
    const spec = JSON.parse(place.nextElementSibling.textContent);
    drawings.get(place)?.finalize();
    try {
      drawings.set(place, await vegaEmbed(place, fitted(spec, place.clientWidth), OPTIONS));
    } catch (error) {
      place.textContent = `This chart could not be drawn: ${error.message}`;
      console.error(error);
    }
  }

  // A picture to keep is as on paper, whatever the page looks like.
  async function save(place, format) {
    const { view } = drawings.get(place);
    const link = document.createElement("a");
    view.background("white");
    link.href = await view.toImageURL(format, 2);
    view.background("transparent");
    link.download = `${place.id}.${format}`;
    link.click();
  }

  function offer(place) {
    const row = document.createElement("div");
    row.className = "save";
    for (const format of ["svg", "png"]) {
      const button = document.createElement("button");
      button.textContent = format.toUpperCase();
      button.title = `save this chart as ${format.toUpperCase()}`;
      button.addEventListener("click", () => save(place, format));
      row.append(button);
    }
    place.parentElement.append(row);
  }

  const drawAll = async () => { for (const place of places) await draw(place); };
  places.forEach(offer);
  window.chartsDrawn = drawAll().then(() => true);

  let width = document.documentElement.clientWidth;
  let waiting;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (width === document.documentElement.clientWidth) return;
      width = document.documentElement.clientWidth;
      window.chartsDrawn = drawAll().then(() => true);
    }, 150);
  });

  // Paper cannot be opened: all is shown there.
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const each of closed) each.open = true;
  });
  window.addEventListener("afterprint", () => { for (const each of closed) each.open = false; });
})();
