// The page as a whole: what a click on a residue does, the table of residues, printing, and dark mode.
"use strict";

(() => {
  const { element } = report;
  const MOST_ROWS = 300;
  const said = document.getElementById("selected");
  const stage = document.getElementById("stage");
  let scene = null;

  const figuresOf = (row) => {
    const values = [
      ["correlation", row.correlation_initial, row.correlation_final, 2],
      ["Q-score", row.q_score_initial, row.q_score_final, 2],
    ]
      .filter(([, , after]) => after != null)
      .map(([name, before, after, digits]) => `${name} ${before == null ? "" : `${before.toFixed(digits)} → `}${after.toFixed(digits)}`);
    if (row.spread != null) values.push(`the models spread by ${row.spread.toFixed(1)} Å`);
    if (row.shift != null) values.push(`moved by ${row.shift.toFixed(1)} Å`);
    return values.join(", ");
  };

  // Turn the view to residues, mark them in the table, and say so; none is the whole model.
  report.select = (rows) => {
    report.stopFilm?.();
    scene?.turnTo(rows);
    const names = rows.map((row) => report.residues[row].residue);
    const listed = names.length > 6 ? `${names[0]} to ${names[names.length - 1]} (${names.length} residues)` : names.join(", ");
    said.textContent = rows.length === 1 ? `${listed}: ${figuresOf(report.residues[rows[0]])}` : listed || "The whole model.";
    const chosen = new Set(rows.map(String));
    for (const line of document.querySelectorAll("tr[data-row]")) line.classList.toggle("selected", chosen.has(line.dataset.row));
    for (const each of document.querySelectorAll("button.show")) {
      each.setAttribute("aria-pressed", String(rows.length > 0 && each.dataset.rows === rows.join(" ")));
    }
    // Where the view is above the text and not beside it, it may be out of sight.
    const box = stage.getBoundingClientRect();
    if (box.bottom < 80 || box.top > window.innerHeight - 80) {
      stage.scrollIntoView({ behavior: report.reducedMotion.matches ? "auto" : "smooth", block: "center" });
    }
  };

  const COLUMNS = [
    ["residue", (row) => row.residue],
    ["CC before", (row) => row.correlation_initial, 2],
    ["CC", (row) => row.correlation_final, 2],
    ["CC reference", (row) => row.correlation_reference, 2],
    ["Q before", (row) => row.q_score_initial, 2],
    ["Q", (row) => row.q_score_final, 2],
    ["Q reference", (row) => row.q_score_reference, 2],
    ["spread (Å)", (row) => row.spread, 2],
    ["models", (row) => row.models, 0],
    ["shift (Å)", (row) => row.shift, 1],
    ["B (Å²)", (row) => row.b_factor, 0],
  ];

  function residueTable(place) {
    const columns = COLUMNS.filter(([, of]) => report.residues.some((row) => of(row) != null));
    const body = element("tbody");
    const find = element("input", { type: "search", placeholder: "as in A 57, or PHE", "aria-label": "Find a residue" });
    const count = element("span", { class: "hint", role: "status" });
    const start = columns.findIndex(([name]) => name === "CC");
    let sorted = { column: Math.max(start, 0), ascending: true };

    const heads = columns.map(([name], number) => {
      const press = element("button", { type: "button" }, name);
      press.addEventListener("click", () => {
        sorted = { column: number, ascending: sorted.column === number ? !sorted.ascending : true };
        fill();
      });
      return element("th", { scope: "col" }, press);
    });

    function fill() {
      const [, of] = columns[sorted.column];
      const words = find.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
      const matches = (row) => {
        const parts = row.residue.toLowerCase().split(" ");
        return words.every((word) => parts.some((part) => part.startsWith(word)));
      };
      const chosen = [...report.residues.keys()].filter((i) => report.residues[i].kind !== "water" && matches(report.residues[i]));
      const sign = sorted.ascending ? 1 : -1;
      if (sorted.column > 0) {
        chosen.sort((a, b) => {
          const [x, y] = [of(report.residues[a]), of(report.residues[b])];
          return x == null || y == null ? (x == null) - (y == null) : sign * (x - y);
        });
      } else if (!sorted.ascending) chosen.reverse();
      heads.forEach((head, i) => head.setAttribute("aria-sort", i !== sorted.column ? "none" : sorted.ascending ? "ascending" : "descending"));
      body.replaceChildren(...chosen.slice(0, MOST_ROWS).map((i) => line(i)));
      const left = chosen.length - MOST_ROWS;
      count.textContent = `${chosen.length} residues${left > 0 ? `, the first ${MOST_ROWS} are listed` : ""}`;
    }

    function line(i) {
      const row = report.residues[i];
      const name = element("button", { type: "button", class: "show", "data-rows": String(i) }, row.residue);
      const cells = columns.slice(1).map(([, of, digits]) => element("td", {}, of(row) == null ? "" : of(row).toFixed(digits)));
      const made = element("tr", { "data-row": String(i) }, element("th", { scope: "row" }, name), ...cells);
      made.addEventListener("click", () => report.select([i]));
      return made;
    }

    find.addEventListener("input", fill);
    const table = element("table", {}, element("caption", {}, place.dataset.caption), element("thead", {}, element("tr", {}, ...heads)), body);
    place.append(element("p", { class: "find" }, find, count), element("div", { class: "scroll tall", tabindex: "0", role: "group", "aria-label": place.dataset.caption }, table));
    fill();
  }

  // A click on a heading sorts the rows by that column: numbers first, in their order, then texts.
  function makeSortable(table) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    let sorted = { column: -1, ascending: true };
    const value = (row, column) => {
      const text = row.cells[column].textContent.trim();
      return text === "" || Number.isNaN(Number(text)) ? text : Number(text);
    };
    const order = (a, b) => {
      if (a === "" || b === "") return null;
      return typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
    };
    heads.forEach((head, column) => {
      const press = element("button", { type: "button" }, head.textContent);
      head.replaceChildren(press);
      press.addEventListener("click", () => {
        sorted = { column, ascending: sorted.column === column ? !sorted.ascending : true };
        const sign = sorted.ascending ? 1 : -1;
        const rows = [...body.rows].map((row) => [value(row, column), row]);
        // What is not known comes last in either order.
        rows.sort(([a], [b]) => (order(a, b) == null ? (a === "") - (b === "") : sign * order(a, b)));
        body.append(...rows.map(([, row]) => row));
        heads.forEach((each, i) => each.setAttribute("aria-sort", i !== column ? "none" : sorted.ascending ? "ascending" : "descending"));
      });
    });
  }

  function hasWebGL() {
    try {
      const canvas = document.createElement("canvas");
      return Boolean(canvas.getContext("webgl2") ?? canvas.getContext("webgl"));
    } catch {
      return false;
    }
  }

  function noView() {
    stage.hidden = true;
    document.getElementById("no-webgl").hidden = false;
    said.textContent = "";
  }

  function startView() {
    if (!report.models.length || !hasWebGL()) {
      noView();
      return;
    }
    try {
      scene = report.scene = new report.Scene(stage);
    } catch (error) {
      noView();
      console.warn(error);
      return;
    }
    report.addControls(scene);
    scene.render();
    stage.addEventListener("keydown", (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.altKey && report.turnBy(scene, event.key)) event.preventDefault();
    });
    new ResizeObserver(() => scene.viewer.resize()).observe(stage);
  }

  function startPrinting() {
    const picture = document.getElementById("stage-print");
    const settle = () => {
      if (scene) picture.src = scene.viewer.pngURI();
      document.body.classList.toggle("has-picture", Boolean(scene));
    };
    window.addEventListener("beforeprint", settle);
  }

  for (const place of document.querySelectorAll(".residues")) residueTable(place);
  for (const table of document.querySelectorAll("table.sortable")) makeSortable(table);
  document.addEventListener("click", (event) => {
    const pressed = event.target.closest("button.show");
    if (!pressed || pressed.closest("tr[data-row]")) return;
    report.select(pressed.dataset.rows.split(" ").filter(Boolean).map(Number));
  });
  startView();
  startPrinting();
  report.darkMode.addEventListener("change", () => {
    scene?.adapt();
    report.redrawPlots();
  });
  report.ready = report.drawPlots().then(() => document.documentElement.classList.add("drawn"));
})();
