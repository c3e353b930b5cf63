"use strict";
// Draws the charts of the page at the width of their containers. Without eval: Vega interprets its expressions.
(() => {
  const NARROW = 600;
  const OPTIONS = {
    mode: "vega-lite", ast: true, renderer: "svg", actions: false, defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
  };
  const containers = [...document.querySelectorAll(".chart")];
  const drawings = new Map();

  // On a phone: legends in two columns, fewer ticks, and no panning, so that a finger scrolls the page.
  function narrowed(part) {
    if (Array.isArray(part)) return part.map(narrowed);
    if (part === null || typeof part !== "object") return part;
    const changed = {};
    const long = (part.scale?.domain ?? []).some((name) => String(name).length > 22);
    for (const [key, value] of Object.entries(part)) {
      if (key === "data" || key === "datasets") changed[key] = value;
      else if (key === "legend" && value) changed[key] = { ...value, orient: "top", columns: long ? 1 : 2, labelLimit: long ? 290 : 140 };
      else if (key === "tickCount") changed[key] = Math.min(value, 5);
      else if (key !== "params") changed[key] = narrowed(value);
    }
    return changed;
  }

  function fitted(chart, room) {
    const narrow = room < NARROW;
    const { hconcat, ...rest } = narrow ? narrowed(chart) : chart;
    const spec = { ...rest, background: "transparent" };
    if (hconcat && narrow) return { ...spec, vconcat: hconcat.map((part) => ({ ...part, width: room - 70 })) };
    if (hconcat) return { ...spec, hconcat };
    if (spec.width > room - 120) Object.assign(spec, { width: room, autosize: { type: "fit-x", contains: "padding" } });
    return spec;
  }

  async function draw(container) {
    const spec = JSON.parse(container.nextElementSibling.textContent);
    drawings.get(container)?.finalize();
    try {
      drawings.set(container, await vegaEmbed(container, fitted(spec, container.clientWidth), OPTIONS));
    } catch (error) {
      container.textContent = `This chart could not be drawn: ${error.message}`;
      console.error(error);
    }
  }

  // A saved chart has the light colours, whatever the colour scheme of the page.
  async function save(container, format) {
    const { view } = drawings.get(container);
    const link = document.createElement("a");
    view.background("white");
    link.href = await view.toImageURL(format, 2);
    view.background("transparent");
    link.download = `${container.id}.${format}`;
    link.click();
  }

  function addSaveButtons(container) {
    const row = document.createElement("div");
    row.className = "save";
    for (const format of ["svg", "png"]) {
      const button = document.createElement("button");
      button.textContent = format.toUpperCase();
      button.title = `save this chart as ${format.toUpperCase()}`;
      button.addEventListener("click", () => save(container, format));
      row.append(button);
    }
    container.parentElement.append(row);
  }

  const drawAll = async () => { for (const container of containers) await draw(container); };
  containers.forEach(addSaveButtons);
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

  // Open all sections for printing.
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const section of closed) section.open = true;
  });
  window.addEventListener("afterprint", () => { for (const section of closed) section.open = false; });
})();
