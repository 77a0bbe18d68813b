"""Tables of the documentation from the figures in ``figures/``, which the benchmarks wrote with ``--json``.

    python docs/evidence/tables.py

writes each anew between its markers, ``<!-- step_gpu.json -->`` and ``<!-- end -->``, on any page; a test says where page and
figures differ. Below each table stands when and where it was measured, and of which commit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

DOCS = Path(__file__).parents[1]
FOLDER = DOCS / "evidence" / "figures"
MARKED = re.compile(r"(<!-- (\w+\.json) -->\n).*?(<!-- end -->)", re.DOTALL)

Figures: TypeAlias = dict[str, Any]


def pages() -> list[Path]:
    """Return the pages that have tables of figures."""
    return [page for page in sorted(DOCS.rglob("*.md")) if MARKED.search(page.read_text(encoding="utf-8"))]


def filled(page: str) -> str:
    """Return a page with each table made from the figures that its marker names."""
    return MARKED.sub(lambda found: f"{found[1]}\n{table_of(found[2])}\n{found[3]}", page)


def table_of(name: str) -> str:
    """Return the table of a file of figures."""
    figures = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return f"{TABLES[name](figures)}\n{measured(figures['measured'])}\n"


def measured(about: Figures) -> str:
    """Return when, where and of which commit figures were measured."""
    day = date.fromisoformat(about["date"])
    return f"Measured on {day.day} {day:%B %Y}, {device(about['machine'])}, commit `{about['commit']}`."


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def density_gpu(figures: Figures) -> str:
    """Return the times of energy and forces on a GPU, with their errors and the parts of the GPU's limits that they reach."""
    rows = [
        (
            case["case"],
            f"{case['replay_us']:.0f}",
            f"{case['error_of_forces']:.0e}",
            f"{case['fraction_of_peak_arithmetic']:.0%}",
            f"{case['fraction_of_copy_bandwidth']:.1%}",
        )
        for case in figures["density"]
    ]
    head = ("atoms, voxels, Gaussians", "µs", "error of forces", "of peak arithmetic", "of copy bandwidth")
    planes = [
        (thousands(each["planes"]), f"{each['replay_us']:.0f}", f"{each['plain_us']:.0f}")
        for each in figures["planarity"]
    ]
    about = f"torch {figures['torch'].partition('+')[0]}."
    of_planes = table(("planes", "µs", "plain PyTorch, µs"), planes)
    return f"{about}\n\n{table(head, rows)}\n{of_planes}"


def md_gpu(figures: Figures) -> str:
    """Return what the density adds to a step of a solvated protein."""
    names = {"nothing": "nothing (an empty module)", "heavy": "the protein's heavy atoms", "all": "all atoms"}
    rows = [
        (
            names[row["case"]],
            thousands(row["n_fitted"]),
            str(row["every"]),
            f"{row['ns_per_day']:.0f}",
            f"{1000 * row['step']:.0f}",
            f"{100 * row['share']:.0f}%",
        )
        for row in figures["rows"]
        if row["backend"] != "none"
    ]
    (alone,) = (row for row in figures["rows"] if row["backend"] == "none" and row["every"] == 1)
    about = (
        f"OpenMM {figures['versions']['openmm']}, {thousands(figures['atoms'])} atoms, "
        f"{figures['timestep_fs']:g} fs; without density {alone['ns_per_day']:.0f} ns/day, {1000 * alone['step']:.0f} µs a step."
    )
    head = ("density of", "atoms", "every … step", "ns/day", "µs a step", "added")
    return f"{about}\n\n{table(head, rows)}"


def step(figures: Figures) -> str:
    """Return what each force of a fit adds to a step."""
    rows = [
        (
            {"DensityFit": "density", "all": "**all of them**"}.get(row["forces"], row["forces"]),
            f"{1000 * row['fastest']:.0f}",
            f"{1000 * row['median']:.0f}",
            "" if row["forces"] == "force field" else f"{100 * row['added']:.0f}%",
        )
        for row in figures["steps"]
    ]
    about = f"With {figures['threads']} threads.\n\n" if figures["threads"] else ""
    return f"{about}{table(('forces', 'fastest step, µs', 'median, µs', 'added'), rows)}"


def sizes(figures: Figures) -> str:
    """Return the set-up, steps and memory of models of many sizes; what was not measured is left empty."""
    parts = [("seconds", part, 1, "s") for part in ("reading", "preparation", "Context")]
    parts += [("ms", part, 10, "ms") for part in ("10 steps", "10 steps with density alone")]
    rows = [
        (
            thousands(row["atoms"]),
            *(
                f"{float(f'{row[of][part] / by:.2g}'):g} {unit}" if part in row[of] else ""
                for of, part, by, unit in parts
            ),
            f"{row['megabytes'] / 1000:.1f} GB",
        )
        for row in figures["rows"]
    ]
    head = (
        "non-hydrogen atoms",
        "read",
        "prepared",
        "Context",
        "a step",
        "with the density alone",
        "the most memory",
    )
    return table(head, rows)


def density_cpu(figures: Figures) -> str:
    """Return the times of the density's kernels on the CPU beside those of other programs."""
    parts = [f"With {figures['threads']} threads where none are named.\n"]
    for case in figures["cases"].values():
        rows = [
            (
                engine["engine"],
                engine["operation"],
                str(engine["threads"]),
                f"{engine['fastest_ms']:.2f}",
                f"{engine['median_ms']:.2f}",
            )
            for engine in case["engines"]
        ]
        parts.append(
            f"{case['title']}:\n\n{table(('who', 'what', 'threads', 'fastest, ms', 'median, ms'), rows)}"
        )
    return "\n".join(parts)


def beside_others(
    figures: Figures, ours: str, peers: Sequence[str], what: str, label: Callable[[Figures], str]
) -> str:
    """Return our fastest calls on one thread of a CPU, and how many times as long others take; a row of each `label`."""
    cases = [
        (label(case), {each["engine"]: each for each in case["engines"] if each["threads"] == 1})
        for case in figures.get("cases") or figures["rows"]
    ]
    peers = [peer for peer in peers if any(peer in engines for _, engines in cases)]
    rows = [
        (
            name,
            taken(engines[ours]),
            *(
                ratio(engines[peer]["fastest_ms"], engines[ours]["fastest_ms"]) if peer in engines else ""
                for peer in peers
            ),
        )
        for name, engines in cases
        if ours in engines
    ]
    head = (what, "fastest, ms (median)", *(f"{peer}, ratio" for peer in peers))
    return f"One thread; ratios are of the fastest calls.\n\n{table(head, rows)}"


def atoms_within(case: Figures) -> str:
    """Return how many atoms a list is of, and its cut-off."""
    return f"{thousands(case['atoms'])}, {case['cutoff']:g} Å"


def atoms_and_pairs(case: Figures) -> str:
    """Return how many atoms and pairs there are."""
    return f"{thousands(case['atoms'])}, {thousands(case['pairs'])}"


def taken(engine: Figures) -> str:
    """Return the fastest of an engine's calls in ms, which others on the machine do not slow down, and the median."""
    times = (engine["fastest_ms"], engine["median_ms"])
    return "{} ({})".format(*(f"{each:.2g}" if each < 10 else f"{each:.0f}" for each in times))


def ratio(one: float, other: float) -> str:
    """Return a ratio to two digits or more."""
    return f"{one / other:.{0 if one >= 10 * other else 1}f}"


def thousands(number: int) -> str:
    """Return a number with a space before each three digits."""
    return f"{number:,}".replace(",", " ")


def device(name: str) -> str:
    """Return what a machine is called here: a GPU's model, a processor's kind."""
    name = name.removeprefix("NVIDIA ")
    return re.sub(r"^Intel\(R\) Xeon\(R\).*?(, .*)?$", r"Intel Xeon\1", name)


TABLES: dict[str, Callable[[Figures], str]] = {
    "density_cpu.json": density_cpu,
    "density_gpu.json": density_gpu,
    "md_gpu.json": md_gpu,
    "neighbors_cpu.json": partial(
        beside_others,
        ours="openmm-density",
        peers=("vesin", "matscipy", "mdtraj"),
        what="atoms, cut-off",
        label=atoms_within,
    ),
    "painn_cpu.json": partial(
        beside_others,
        ours="openmm-density",
        peers=("SchNetPack", "eager PyTorch"),
        what="atoms, pairs",
        label=atoms_and_pairs,
    ),
    "pairs_cpu.json": partial(
        beside_others,
        ours="openmm-density, list kept",
        peers=("OpenMM NonbondedForce", "eager PyTorch"),
        what="atoms, pairs",
        label=atoms_and_pairs,
    ),
    "sizes_gpu.json": sizes,
    "step_cpu.json": step,
    "step_gpu.json": step,
}


if __name__ == "__main__":
    for page in pages():
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
