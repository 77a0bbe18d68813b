// What is below the 3-D view: which models and surfaces are shown, their colours, the map's level, and the film.
"use strict";

(() => {
  const { element } = report;
  const FRAMES_PER_SECOND = 12;

  const checkbox = (label, checked, color, change) => {
    const box = element("input", { type: "checkbox", checked });
    box.addEventListener("change", () => change(box.checked));
    const swatch = color ? element("span", { class: "swatch", style: `background:${color}`, "aria-hidden": "true" }) : "";
    return element("label", { class: "toggle" }, box, swatch, label);
  };
  const group = (name, ...content) => element("fieldset", {}, element("legend", {}, name), ...content);
  const button = (text, label, press) => {
    const made = element("button", { type: "button", "aria-label": label, title: label }, text);
    made.addEventListener("click", press);
    return made;
  };

  function modelsGroup(scene) {
    const boxes = report.models.map((model) =>
      checkbox(model.label, scene.shown.get(model.key), report.colorOf(model.key), (on) => {
        report.stopFilm?.();
        scene.show(model.key, on);
      }),
    );
    return group("Models", ...boxes, checkbox("side chains", false, null, (on) => scene.showSticks(on)));
  }

  function colorGroup(scene) {
    const choice = element("select", { id: "coloring" });
    for (const [key, coloring] of Object.entries(report.colorings)) choice.append(element("option", { value: key }, coloring.label));
    const legend = element("span", { class: "legend", hidden: true });
    choice.addEventListener("change", () => {
      const coloring = report.colorings[choice.value];
      legend.hidden = !coloring.of;
      if (coloring.of) {
        const ends = [coloring.low, coloring.high].map((value) => value.toFixed(coloring.digits));
        const stops = [0, 0.25, 0.5, 0.75, 1].map((part) => report.mix(coloring.reversed ? 1 - part : part));
        legend.replaceChildren(ends[0], element("span", { class: "ramp", style: `background:linear-gradient(90deg,${stops})` }), ends[1]);
      }
      scene.colorBy(choice.value);
    });
    return group("Colour", element("label", {}, "by ", choice), legend);
  }

  function mapGroup(scene) {
    if (!report.surfaces) return group("Map", element("span", {}, "There is none around the models."));
    const { map, difference } = report.surfaces;
    const top = Math.max(map.lowest + 255 * map.step, map.level);
    const bottom = Math.min(map.level, map.mean);
    const slider = element("input", { type: "range", id: "level", min: 0, max: 100, step: 1 });
    const part = (level) => 100 * Math.sqrt(Math.max(level - bottom, 0) / (top - bottom || 1));
    const level = () => bottom + (top - bottom) * (slider.value / 100) ** 2;
    slider.value = Math.round(part(map.level));
    const said = element("output", { for: "level" });
    const tell = () => {
      const value = level();
      const sd = map.sd ? ` (${((value - map.mean) / map.sd).toFixed(1)} σ)` : "";
      said.textContent = `${value.toPrecision(3)}${sd}`;
      slider.setAttribute("aria-valuetext", said.textContent);
    };
    let mesh = false;
    let shown = true;
    let waiting = 0;
    const draw = () => scene.surface("map", shown ? level() : null, mesh);
    slider.addEventListener("input", () => {
      tell();
      clearTimeout(waiting);
      waiting = setTimeout(draw, 60);
    });
    tell();
    draw();
    const content = [
      checkbox("surface", true, null, (on) => ((shown = on), draw())),
      checkbox("mesh", false, null, (on) => ((mesh = on), draw())),
      element("label", { class: "wide" }, "level ", slider, said),
    ];
    if (difference) {
      const legend = element(
        "span",
        { class: "hint", hidden: true },
        element("span", { class: "swatch", style: "background:#d62728", "aria-hidden": "true" }),
        "red: model without density; ",
        element("span", { class: "swatch", style: "background:#2a9d5c", "aria-hidden": "true" }),
        "green: density without model",
      );
      content.push(
        checkbox("difference, model − map", false, null, (on) => {
          legend.hidden = !on;
          scene.surface("difference", on ? difference.level : null);
        }),
        legend,
      );
    }
    return group("Map", ...content);
  }

  function filmGroup(scene) {
    const { film } = report;
    if (!film) return "";
    const slider = element("input", { type: "range", min: 0, max: film.frames - 1, step: 1, value: film.frames - 1, "aria-label": film.title ? "Volume" : "Frame of the fit" });
    const said = element("output", {});
    let timer = 0;
    const show = () => {
      const frame = Number(slider.value);
      said.textContent = film.names?.[film.number(frame)] ?? `${frame + 1} of ${film.frames}`;
      scene.frame(frame);
      report.markFrame(film.number(frame));
    };
    // A volume of a series, by its number from 0, as where a point of a plot is clicked on.
    report.showFrame = (number) => {
      rest();
      slider.value = Math.round(number / (film.number(1) || 1));
      show();
    };
    const rest = () => {
      clearInterval(timer);
      timer = 0;
      play.textContent = "▶ Play";
      play.setAttribute("aria-pressed", "false");
    };
    const play = button("▶ Play", film.title ? "Play the series as a film" : "Play the fit as a film", () => {
      if (timer) {
        rest();
        return;
      }
      if (Number(slider.value) >= film.frames - 1) slider.value = 0;
      play.textContent = "Pause";
      play.setAttribute("aria-pressed", "true");
      show();
      // Who wants less motion sees a few frames, one after the other.
      const few = report.reducedMotion.matches;
      const stride = few ? Math.max(Math.round(film.frames / 6), 1) : 1;
      timer = setInterval(
        () => {
          slider.value = Math.min(Number(slider.value) + stride, film.frames - 1);
          show();
          if (Number(slider.value) >= film.frames - 1) rest();
        },
        few ? 1500 : 1000 / (film.rate ?? FRAMES_PER_SECOND),
      );
    });
    slider.addEventListener("input", () => {
      rest();
      show();
    });
    report.stopFilm = () => {
      if (!scene.filming) return;
      rest();
      scene.frame(null);
      report.markFrame(null);
      said.textContent = "";
    };
    const end = film.title ? "End the film and show the last model" : "End the film and show the fitted model";
    return group(film.title ?? "Film of the fit", play, slider, said, button("✕", end, () => report.stopFilm()));
  }

  report.turnBy = (scene, key) => {
    const turn = { ArrowLeft: ["y", -10], ArrowRight: ["y", 10], ArrowUp: ["x", -10], ArrowDown: ["x", 10] }[key];
    if (turn) scene.viewer.rotate(turn[1], turn[0]);
    else if (key === "+" || key === "=") scene.viewer.zoom(1.2);
    else if (key === "-") scene.viewer.zoom(1 / 1.2);
    else if (key === "0") report.select([]);
    else return false;
    return true;
  };

  report.addControls = (scene) => {
    const view = group(
      "View",
      button("All", "Show all of the model", () => report.select([])),
      button("+", "Zoom in", () => scene.viewer.zoom(1.25)),
      button("−", "Zoom out", () => scene.viewer.zoom(0.8)),
      button("↺", "Turn left", () => scene.viewer.rotate(-20, "y")),
      button("↻", "Turn right", () => scene.viewer.rotate(20, "y")),
    );
    document.getElementById("controls").append(modelsGroup(scene), colorGroup(scene), mapGroup(scene), filmGroup(scene), view);
  };
})();
