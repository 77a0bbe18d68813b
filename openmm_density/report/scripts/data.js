// The data of the page, unpacked. Every script adds what others need to `report`.
"use strict";
const report = {};

(() => {
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const array = (Kind, text) => new Kind(bytes(text).buffer);

  // Rows of columns, as which a file is a third as large.
  const rows = (columns) => {
    const names = Object.keys(columns);
    return (columns[names[0]] ?? []).map((_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]])));
  };

  const data = JSON.parse(document.getElementById("data").textContent);
  report.residues = rows(data.residues);
  report.figures = data.figures;

  report.atomSets = data.structures.atoms.map((packed) => ({
    names: packed.names,
    elements: packed.elements,
    residues: rows(packed.residues),
    name: array(Uint16Array, packed.name),
    element: array(Uint8Array, packed.element),
    residue: array(Uint32Array, packed.residue),
    bonds: array(Uint32Array, packed.bonds),
  }));
  report.models = data.structures.models.map((packed) => ({
    key: packed.key,
    label: packed.label,
    color: packed.color,
    atoms: report.atomSets[packed.atoms],
    positions: array(Float32Array, packed.positions),
  }));

  const film = data.structures.film;
  report.film = film && {
    frames: film.frames,
    // What a film of separate maps has: a title, a name for each frame, and how many are shown in a second.
    title: film.title,
    names: film.names,
    rate: film.rate,
    // The number, in what the plots are about, of a frame: of long series not all are in the film.
    number: (frame) => frame * film.every,
    atoms: film.atoms && array(Uint32Array, film.atoms),
    // Coordinates of a frame, in Å, three for each atom.
    frame(number) {
      this.values ??= array(Int16Array, film.values);
      const length = this.values.length / film.frames;
      const own = this.values.subarray(number * length, (number + 1) * length);
      return Float32Array.from(own, (value, i) => value * film.step + film.centre[i % 3]);
    },
  };

  const grid = (packed) =>
    packed && {
      ...packed,
      density() {
        this.unpacked ??= Float32Array.from(bytes(packed.values), (value) => packed.lowest + packed.step * value);
        return this.unpacked;
      },
    };
  report.surfaces = data.surfaces && {
    map: grid(data.surfaces.map),
    difference: grid(data.surfaces.difference),
    // The map of each frame of a series, shown in place of the map while the film is.
    frames: data.surfaces.frames?.map(grid),
  };

  report.stageOf = { after: "final", before: "initial", reference: "reference" };
  report.reducedMotion = window.matchMedia("(prefers-reduced-motion: reduce)");
  report.darkMode = window.matchMedia("(prefers-color-scheme: dark)");
  report.css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // A new element with attributes, and texts or elements in it.
  report.element = (name, attributes = {}, ...content) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value !== false && value != null) made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...content);
    return made;
  };
})();
