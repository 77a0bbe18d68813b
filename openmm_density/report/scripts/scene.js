// The 3-D view: models and surfaces, what they are coloured by, and where it looks.
"use strict";

(() => {
  const COLORS = { after: "#1f6feb", before: "#8b95a5", reference: "#d1495b", copies: "#b3a5d6", film: "#1f6feb" };
  const SURFACE = "#4573b5";
  const NOWHERE = 1e8;
  const UNKNOWN = "#9aa0a6";
  const TURN = 600;
  // Å in front of and behind residues that are looked at, beyond which nothing hides them.
  const [BEFORE, BEHIND] = [9, 16];
  // Low is orange and high is blue, which everybody can tell apart.
  const SCALE = ["#b3400a", "#f08c00", "#e8cf9a", "#74a9d8", "#1b4f9c"].map((hex) =>
    [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)),
  );

  const COLORINGS = {
    model: { label: "model", of: null },
    correlation: { label: "correlation", of: (row, stage) => row[`correlation_${stage}`], digits: 2 },
    q_score: { label: "Q-score", of: (row, stage) => row[`q_score_${stage}`], digits: 2 },
    b_factor: { label: "B factor (Å²)", of: (row) => row.b_factor, digits: 0, reversed: true },
    spread: { label: "spread (Å)", of: (row) => row.spread, digits: 1, reversed: true },
    shift: { label: "shift (Å)", of: (row) => row.shift, digits: 1, reversed: true },
  };

  report.mix = (part) => {
    const place = Math.min(Math.max(part, 0), 1) * (SCALE.length - 1);
    const below = Math.min(Math.floor(place), SCALE.length - 2);
    const mixed = SCALE[below].map((value, i) => Math.round(value + (place - below) * (SCALE[below + 1][i] - value)));
    return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
  };

  // What models can be coloured by, with the range that the residues have.
  report.colorings = {};
  for (const [key, coloring] of Object.entries(COLORINGS)) {
    if (!coloring.of) {
      report.colorings[key] = coloring;
      continue;
    }
    const values = report.residues
      .filter((row) => row.kind !== "water")
      .map((row) => coloring.of(row, "final"))
      .filter((value) => value != null)
      .sort((a, b) => a - b);
    if (!values.length || values[values.length - 1] - values[0] < 1e-6) continue;
    const at = (part) => values[Math.round(part * (values.length - 1))];
    report.colorings[key] = { ...coloring, low: at(0.02), high: at(0.98) };
  }

  const atomsOf = (set, positions, chosen) => {
    const indices = chosen ?? Uint32Array.from(set.name.keys());
    const place = new Map();
    const atoms = [];
    indices.forEach((index, number) => {
      const at = chosen ? number : index;
      const x = positions[3 * at];
      if (x > NOWHERE) return;
      const residue = set.residues[set.residue[index]];
      place.set(index, atoms.length);
      atoms.push({
        elem: set.elements[set.element[index]],
        atom: set.names[set.name[index]],
        x,
        y: positions[3 * at + 1],
        z: positions[3 * at + 2],
        chain: String(residue.chain),
        reschain: residue.chain,
        resi: set.residue[index],
        resn: residue.name,
        ss: { H: "h", E: "s" }[residue.structure] ?? "c",
        hetflag: !residue.polymer,
        bonds: [],
        bondOrder: [],
        serial: atoms.length,
        properties: { row: residue.row, polymer: residue.polymer },
      });
    });
    const bonded = new Set();
    for (let i = 0; i < set.bonds.length; i += 2) {
      const [a, b] = [place.get(set.bonds[i]), place.get(set.bonds[i + 1])];
      if (a == null || b == null) continue;
      atoms[a].bonds.push(b);
      atoms[b].bonds.push(a);
      atoms[a].bondOrder.push(1);
      atoms[b].bondOrder.push(1);
      bonded.add(a).add(b);
    }
    atoms.forEach((atom, i) => {
      atom.properties.alone = !bonded.has(i);
    });
    return atoms;
  };

  class Scene {
    constructor(element) {
      this.viewer = $3Dmol.createViewer(element, { backgroundColor: report.css("--stage"), antialias: true, upscale: false });
      this.models = new Map();
      this.shown = new Map();
      this.shapes = new Map();
      this.coloring = "model";
      this.sticks = false;
      this.selected = [];
      this.levels = {};
      for (const model of report.models) this.#add(model.key, atomsOf(model.atoms, model.positions));
      if (report.film) {
        const first = report.film.frame(0);
        this.#add("film", atomsOf(report.models[0].atoms, first, report.film.atoms), false);
      }
      this.viewer.zoomTo(this.#visible());
    }

    #visible() {
      return { model: [...this.models].filter(([key]) => this.shown.get(key)).map(([, model]) => model) };
    }

    #add(key, atoms, shown = key !== "reference") {
      const model = this.viewer.addModel();
      model.addAtoms(atoms);
      model.setClickable({}, true, (atom) => {
        if (atom.properties.row != null) report.select([atom.properties.row]);
      });
      this.models.set(key, model);
      this.shown.set(key, shown);
      this.#style(key);
    }

    #color(key) {
      const coloring = report.colorings[this.coloring];
      if (!coloring.of || key === "reference" || key === "copies") return () => report.colorOf(key);
      const stage = report.stageOf[key === "film" ? "after" : key];
      return (atom) => {
        const row = atom.properties.row == null ? null : report.residues[atom.properties.row];
        const value = row && coloring.of(row, stage);
        if (value == null) return UNKNOWN;
        const part = (value - coloring.low) / (coloring.high - coloring.low);
        return report.mix(coloring.reversed ? 1 - part : part);
      };
    }

    #style(key) {
      const model = this.models.get(key);
      const colorfunc = this.#color(key);
      const chosen = new Set(this.selected);
      const carbon = (atom) => (atom.elem === "C" ? colorfunc(atom) : ($3Dmol.elementColors.rasmol[atom.elem] ?? UNKNOWN));
      const stick = { radius: 0.16, colorfunc: carbon };
      const is = (test) => ({ predicate: test });
      model.setStyle({}, {});
      if (!this.shown.get(key)) {
        model.hide();
        return;
      }
      model.show();
      const cartoon = { cartoon: { colorfunc, arrows: true, thickness: 0.35, style: "oval" } };
      model.setStyle(is((atom) => atom.properties.polymer), cartoon);
      model.setStyle(is((atom) => !atom.properties.polymer && !atom.properties.alone), { stick });
      model.setStyle(is((atom) => !atom.properties.polymer && atom.properties.alone), { sphere: { radius: 0.9, colorfunc: carbon } });
      if (this.sticks) model.setStyle(is((atom) => atom.properties.polymer), { ...cartoon, stick });
      if (chosen.size) {
        const near = is((atom) => chosen.has(atom.properties.row));
        model.setStyle(near, { ...cartoon, stick: { radius: 0.22, colorfunc: carbon } });
      }
    }

    #styleAll() {
      for (const key of this.models.keys()) this.#style(key);
    }

    render() {
      this.viewer.render();
    }

    show(key, shown) {
      this.shown.set(key, shown);
      this.#style(key);
      this.render();
    }

    colorBy(coloring) {
      this.coloring = coloring;
      this.#styleAll();
      this.render();
    }

    showSticks(shown) {
      this.sticks = shown;
      this.#styleAll();
      this.render();
    }

    // Places of residues, in Å: of the fitted model, or of the first that has them.
    atomsOf(rows) {
      const wanted = new Set(rows);
      for (const key of this.models.keys()) {
        const atoms = this.models.get(key).selectedAtoms({}).filter((atom) => wanted.has(atom.properties.row));
        if (atoms.length) return atoms;
      }
      return [];
    }

    turnTo(rows) {
      this.selected = rows;
      this.#styleAll();
      this.viewer.removeAllLabels();
      const atoms = this.atomsOf(rows);
      const duration = report.reducedMotion.matches ? 0 : TURN;
      if (!atoms.length) {
        this.viewer.zoomTo(this.#visible(), duration);
      } else {
        const [low, high] = [Math.min, Math.max].map((end) => ["x", "y", "z"].map((axis) => end(...atoms.map((atom) => atom[axis]))));
        const margin = rows.length === 1 ? 5 : 3;
        const inside = (atom) => ["x", "y", "z"].every((axis, i) => atom[axis] >= low[i] - margin && atom[axis] <= high[i] + margin);
        this.viewer.zoomTo({ predicate: inside }, duration);
        const radius = Math.hypot(...low.map((value, i) => high[i] - value)) / 2;
        this.viewer.setSlab(-radius - BEFORE, radius + BEHIND);
        this.#label(rows, atoms);
      }
      this.render();
    }

    #label(rows, atoms) {
      if (rows.length > 8) return;
      for (const row of rows) {
        const own = atoms.filter((atom) => atom.properties.row === row);
        if (!own.length) continue;
        const at = own.find((atom) => ["CA", "P"].includes(atom.atom)) ?? own[0];
        this.viewer.addLabel(report.residues[row].residue, {
          position: at,
          fontSize: 12,
          fontColor: "#111111",
          backgroundColor: "#ffffff",
          backgroundOpacity: 0.8,
          inFront: true,
        });
      }
    }

    // A surface of the map, or both of the difference; null takes it away.
    surface(name, level, mesh = false) {
      for (const shape of this.shapes.get(name) ?? []) this.viewer.removeShape(shape);
      this.shapes.delete(name);
      this.levels[name] = level;
      this.mesh = mesh;
      if (level != null) {
        const grid = (name === "map" && this.frameMap) || report.surfaces[name];
        // Each map of a series has values of its own: the level is as far from that at which it opens.
        if (grid === this.frameMap) level *= grid.level / (report.surfaces.map.level || 1);
        const looks =
          name === "map"
            ? [{ isoval: level, color: SURFACE, opacity: mesh ? 0.8 : 0.5 }]
            : [
                // Opaque, or they would not be seen inside the map's surface.
                { isoval: level, color: "#d62728", opacity: 1 },
                { isoval: -level, color: "#2a9d5c", opacity: 1 },
              ];
        const made = looks.map((look) => this.viewer.addIsosurface(this.#volume(grid), { ...look, wireframe: mesh, smoothness: 2 }));
        this.shapes.set(name, made);
      }
      this.render();
    }

    #volume(grid) {
      if (!grid.volume) {
        const volume = new $3Dmol.VolumeData("", "none");
        const [x, y, z] = grid.size;
        volume.size = { x, y, z };
        volume.data = grid.density();
        const [a, b, c] = grid.matrix;
        const o = grid.origin;
        volume.matrix = new $3Dmol.Matrix4(...a, o[0], ...b, o[1], ...c, o[2], 0, 0, 0, 1);
        grid.volume = volume;
      }
      return grid.volume;
    }

    // A frame of the fit in place of the fitted model; null ends the film.
    frame(number) {
      const model = this.models.get("film");
      const showing = number != null;
      const frameMap = showing ? report.surfaces?.frames?.[report.film.number(number)] : null;
      if (frameMap !== (this.frameMap ?? null)) {
        this.frameMap = frameMap;
        this.surface("map", this.levels.map, this.mesh);
      }
      if (showing) {
        const places = report.film.frame(number);
        model.selectedAtoms({}).forEach((atom, i) => {
          atom.x = places[3 * i];
          atom.y = places[3 * i + 1];
          atom.z = places[3 * i + 2];
        });
      }
      if (showing !== this.filming) {
        this.filming = showing;
        this.kept ??= this.shown.get("after");
        this.shown.set("after", showing ? false : this.kept);
        if (!showing) this.kept = undefined;
        this.#style("after");
      }
      this.shown.set("film", showing);
      this.#style("film");
      this.render();
    }

    adapt() {
      this.viewer.setBackgroundColor(report.css("--stage"));
      this.render();
    }
  }

  report.Scene = Scene;
  report.colorOf = (key) => COLORS[key] ?? report.models.find((model) => model.key === key)?.color ?? UNKNOWN;
})();
