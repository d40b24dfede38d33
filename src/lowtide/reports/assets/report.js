"use strict";
// Draws the plots into the page, in its theme, over steps or over time.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");

  const models = () => (Bokeh.documents.length ? [...Bokeh.documents[0].all_models] : []);
  const color = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  function paint(model) {
    const [text, quiet, line] = [color("--text"), color("--quiet"), color("--line")];
    if (model.type.endsWith("Axis")) {
      model.setv({
        axis_label_text_color: quiet, major_label_text_color: quiet, axis_line_color: line, major_tick_line_color: line,
      });
    } else if (model.type === "Grid") {
      model.grid_line_color = line;
    } else if (model.type === "Figure" || model.type === "Plot") {
      if (model.tags.includes("arena")) model.background_fill_color = color("--free");
    } else if (model.name === "crosshair" || model.name === "front") {
      model.line_color = text;
    } else if (model.name === "label") {
      model.text_color = text;
    }
  }

  function setTheme(theme) {
    root.dataset.theme = theme;
    for (const button of document.querySelectorAll("[data-set-theme]")) {
      button.setAttribute("aria-pressed", String(button.dataset.setTheme === theme));
    }
    models().forEach(paint);
  }

  function setAxis(axis) {
    for (const button of document.querySelectorAll("[data-set-axis]")) {
      button.setAttribute("aria-pressed", String(button.dataset.setAxis === axis));
    }
    const end = data.axes[axis].end;
    for (const model of models()) {
      if (model.type === "ColumnDataSource") {
        const columns = { ...model.data };
        for (const name of ["x", "left", "right"]) {
          if (`${name}_${axis}` in columns) columns[name] = columns[`${name}_${axis}`];
        }
        model.data = columns;
      } else if (model.name === "x_range") {
        model.setv({ bounds: [0, end], start: 0, end, reset_start: 0, reset_end: end });
      } else if (model.type === "LinearAxis" && model.name === "x_axis") {
        model.axis_label = data.axes[axis].label;
      }
    }
  }

  function letFingersScroll() {
    if (!window.matchMedia("(pointer: coarse)").matches) return;
    for (const model of models()) {
      if (model.type === "Toolbar") model.setv({ active_drag: null, active_scroll: null });
      if (model.type === "BoxZoomTool" || model.type === "WheelZoomTool") model.active = false;
    }
  }

  const asked = ["dark", "light"].find((theme) => location.hash === `#${theme}`);
  setTheme(asked || (prefersDark.matches ? "dark" : "light"));
  prefersDark.addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));
  for (const button of document.querySelectorAll("[data-set-theme]")) {
    button.addEventListener("click", () => setTheme(button.dataset.setTheme));
  }
  for (const button of document.querySelectorAll("[data-set-axis]")) {
    button.addEventListener("click", () => setAxis(button.dataset.setAxis));
  }

  const roots = Object.fromEntries(Object.entries(data.roots).map(([element, model]) => [model, element]));
  const item = { docid: "report", roots, root_ids: Object.keys(roots) };
  Bokeh.embed.embed_items({ report: data.document }, [item]).then(() => {
    setTheme(root.dataset.theme);
    letFingersScroll();
    root.dataset.plots = String(document.querySelectorAll(".plot > *").length);
  });
})();
