// The plots: plotly draws them; a click on a point shows its residue.
"use strict";

(() => {
  const { element } = report;
  // Where there is no mouse its buttons stay, and would lie over the legend of a narrow plot.
  const buttons = matchMedia("(hover: hover) and (min-width: 521px)").matches ? "hover" : false;
  const config = { displaylogo: false, displayModeBar: buttons, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud"], plotlyServerURL: "" };
  // What a figure shows is in its description and in tables; of its drawing a screen reader would say each tick.
  const hush = () => {
    for (const drawing of document.querySelectorAll(".main-svg, .modebar-btn svg, #js-plotly-tester")) drawing.setAttribute("aria-hidden", "true");
  };
  const drawn = [];

  const looks = () => {
    const [text, grid, panel] = ["--text", "--grid", "--panel"].map(report.css);
    return { text, grid, panel };
  };

  // The layout of a figure in the page's colours and width.
  const styled = (figure, width) => {
    const { text, grid, panel } = looks();
    const narrow = width < 480;
    const layout = structuredClone(figure.layout);
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis/.test(key)) Object.assign(layout[key], { gridcolor: grid, linecolor: grid, automargin: true });
    }
    for (const shape of layout.shapes ?? []) if (shape.type === "line") shape.line.color = text;
    return {
      ...layout,
      height: figure.height ?? 340,
      paper_bgcolor: panel,
      plot_bgcolor: panel,
      font: { color: text, family: "system-ui, sans-serif", size: narrow ? 11 : 12 },
      margin: { l: narrow ? 44 : 56, r: 12, t: figure.top ?? 12, b: 44, ...layout.margin },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, ...layout.legend },
      hoverlabel: { align: "left" },
      dragmode: narrow ? false : "zoom",
    };
  };

  const HEIGHTS = { agreement: 430, progress: 560, geometry: 380, ramachandran: 460, puckers: 400, pyranoses: 400 };
  const TOPS = { progress: 78, geometry: 16 };

  function draw(place) {
    const key = place.dataset.figure;
    const figure = { ...report.figures[key], height: HEIGHTS[key], top: TOPS[key] };
    if (figure.regions) addRegions(place, figure);
    const layout = styled(figure, place.clientWidth);
    if (figure.regions) Object.assign(layout, regionsOf(figure, figure.plot));
    const data = figure.regions ? figure.data.map((trace) => inPlot(trace, figure.plot)) : figure.data;
    drawn.push({ place, figure });
    return Plotly.newPlot(place, structuredClone(data.map(named)), layout, config).then(() => {
      hush();
      place.on("plotly_click", (event) => {
        if (figure.frames) {
          report.showFrame?.(Math.round(event.points[0].x) - 1);
          return;
        }
        const rows = event.points.map((point) => point.customdata).filter((row) => row != null);
        if (rows.length) report.select(rows.slice(0, 1));
      });
    });
  }

  // Points are named by their residues, whose names a figure need not repeat; Plotly reads names as HTML.
  const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const named = (trace) =>
    trace.text || !trace.customdata ? trace : { ...trace, text: trace.customdata.map((row) => plain(report.residues[row].residue)) };

  const inPlot = (trace, plot) => ({ ...trace, visible: trace.plot === plot ? trace.visible : false, showlegend: trace.plot === plot });

  const regionsOf = (figure, plot) => {
    const paths = figure.regions[plot] ?? {};
    const shape = (path, fillcolor) => path && { type: "path", path, fillcolor, line: { width: 0 }, layer: "below" };
    return { shapes: [shape(paths.allowed, "rgba(31,111,235,0.14)"), shape(paths.favoured, "rgba(31,111,235,0.26)")].filter(Boolean) };
  };

  // The plots of torsions have their own regions for some kinds of residues, of which one is shown at a time.
  function addRegions(place, figure) {
    const original = report.figures[place.dataset.figure];
    figure.plot = original.plot ??= Object.keys(figure.plots)[0];
    if (place.parentElement.querySelector("select")) return;
    const choice = element("select", {});
    for (const [key, name] of Object.entries(figure.plots)) choice.append(element("option", { value: key }, name));
    choice.addEventListener("change", () => {
      original.plot = choice.value;
      redraw();
    });
    place.before(element("label", { class: "plot-choice" }, "residues: ", choice));
  }

  function redraw() {
    for (const { place } of drawn.splice(0)) {
      Plotly.purge(place);
      draw(place);
    }
  }

  report.drawPlots = async () => {
    for (const place of document.querySelectorAll(".drawing")) {
      await draw(place);
      // Between two plots the page answers.
      await new Promise((resume) => setTimeout(resume));
    }
  };
  report.redrawPlots = redraw;
  // A line at the volume that the film shows, in the plots over volumes; null takes it away.
  report.markFrame = (number) => {
    const at = { type: "line", xref: "x", yref: "paper", x0: number + 1, x1: number + 1, y0: 0, y1: 1 };
    const shapes = number == null ? [] : [{ ...at, line: { color: looks().text, width: 1, dash: "dot" } }];
    for (const { place, figure } of drawn) {
      if (figure.frames) Plotly.relayout(place, { shapes });
    }
  };
  report.resizePlots = () => drawn.forEach(({ place }) => Plotly.Plots.resize(place));
})();
