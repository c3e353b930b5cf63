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
    if (spec.width > 0.7 * room) Object.assign(spec, { width: room, autosize: { type: "fit-x", contains: "padding" } });
    return spec;
  }

  // A chart in a folded section may have no width yet: it gets that of a card in the main column.
  function room(container) {
    const main = document.querySelector("main");
    const { paddingLeft, paddingRight } = getComputedStyle(main);
    const card = getComputedStyle(container.parentElement);
    const column = main.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
    return container.clientWidth || column - parseFloat(card.paddingLeft) - parseFloat(card.paddingRight) - 2;
  }

  async function draw(container) {
    const spec = JSON.parse(container.nextElementSibling.textContent);
    drawings.get(container)?.finalize();
    try {
      drawings.set(container, await vegaEmbed(container, fitted(spec, room(container)), OPTIONS));
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

  // For printing, a report opens the sections that are part of its print; other pages open all.
  const parts = document.querySelector(".parts");
  const printed = parts ? "details[data-print]" : "details";
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll(`${printed}:not([open])`)];
    for (const section of closed) section.open = true;
  });
  window.addEventListener("afterprint", () => { for (const section of closed) section.open = false; });

  // A link to a folded section opens it, also in browsers that do not do so on their own.
  function reveal() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  }
  window.addEventListener("hashchange", reveal);
  reveal();

  function button(name, text, action) {
    const made = document.createElement("button");
    Object.assign(made, { className: name, textContent: text, type: "button" });
    made.addEventListener("click", () => action(made));
    return made;
  }

  async function copy(command, made) {
    try {
      await navigator.clipboard.writeText(command.textContent);
      made.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(command);
      made.textContent = "selected: press Ctrl-C";
    }
    setTimeout(() => { made.textContent = "copy"; }, 2000);
  }

  for (const command of document.querySelectorAll("pre.command")) {
    command.after(button("copy", "copy", (made) => copy(command, made)));
  }

  const names = ["open all sections", "close all sections"];
  parts?.before(button("open-all", names[0], (made) => {
    const open = made.textContent === names[0];
    for (const section of parts.querySelectorAll("details")) section.open = open;
    made.textContent = names[open ? 1 : 0];
  }));
})();
