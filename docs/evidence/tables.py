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


def density_cpu(figures: Figures) -> str:
    """Return the times of the density's kernels on the CPU, and how many times as long other programs take."""
    rows = []
    for case in figures["cases"].values():
        for ours in case["engines"]:
            if ours["engine"] in ("density_splat, density_gather", "density_similarity", "density_splat"):
                same = (ours["operation"], ours["threads"])
                others = [
                    f"{each['engine']} {times(each, ours)}"
                    for each in case["engines"]
                    if (each["operation"], each["threads"]) == same and "density_" not in each["engine"]
                ]
                rows.append(
                    (case["title"], ours["operation"], str(ours["threads"]), taken(ours), ", ".join(others))
                )
    return table(("atoms and map", "what", "threads", "median, ms (quartiles)", "others"), rows)


def neighbors_cpu(figures: Figures) -> str:
    """Return the times of neighbour lists on the CPU, and how many times as long other programs take."""
    peers = ("vesin", "matscipy", "mdtraj")
    rows = [
        (thousands(case["atoms"]), f"{case['cutoff']:g} Å", str(threads), *row)
        for case in figures["cases"]
        for threads, row in of_threads(case["engines"], "openmm-density", peers)
    ]
    return table(("atoms", "cut-off", "threads", "median, ms (quartiles)", *peers), rows)


def pairs_cpu(figures: Figures) -> str:
    """Return the times of pair energies on the CPU, and how many times as long others take."""
    peers = ("OpenMM NonbondedForce", "eager PyTorch")
    rows = [
        (thousands(row["atoms"]), str(threads), *cells)
        for row in figures["rows"]
        for threads, cells in of_threads(row["engines"], "openmm-density, list kept", peers)
    ]
    return table(("atoms", "threads", "median, ms (quartiles)", *peers), rows)


def painn_cpu(figures: Figures) -> str:
    """Return the times of PaiNN on the CPU, and how many times as long others take."""
    peers = ("eager PyTorch",)
    rows = [
        (f"{thousands(row['atoms'])}, {thousands(row['pairs'])}", str(threads), *cells)
        for row in figures["rows"]
        for threads, cells in of_threads(row["engines"], "openmm-density", peers)
    ]
    return table(("atoms, pairs", "threads", "median, ms (quartiles)", *peers), rows)


def neighbors_gpu(figures: Figures) -> str:
    """Return the times of neighbour lists on a GPU, and how many times as long others take."""
    peers = ("vesin", "PyTorch")
    rows = [
        (
            thousands(row["atoms"]),
            f"{row['cutoff']:g} Å",
            f"{row['replay_us']:.0f}",
            f"{row['kept_us']:.0f}",
            *(
                ratio(row["peers_us"][peer], row["replay_us"]) if peer in row["peers_us"] else ""
                for peer in peers
            ),
        )
        for row in figures["rows"]
    ]
    return table(("atoms", "cut-off", "list, µs", "a look at a kept list, µs", *peers), rows)


def pairs_gpu(figures: Figures) -> str:
    """Return the times of pair energies on a GPU, OpenMM's and eager PyTorch's."""
    columns = ("pairs_us", "kept_us", "each_pair_once_us", "openmm_step_us", "eager_us")
    rows = [
        (thousands(row["atoms"]), *(thousands(round(row[name])) for name in columns))
        for row in figures["rows"]
    ]
    head = ("each pair listed twice", "with a look at the list's skin", "each pair once")
    return table(("atoms", *head, "a step of OpenMM's `NonbondedForce`", "eager PyTorch"), rows)


def painn_gpu(figures: Figures) -> str:
    """Return the times of PaiNN on a GPU, and how many times as long eager PyTorch takes."""
    rows = [
        (
            f"{thousands(row['atoms'])}, {thousands(row['pairs'])}",
            f"{row['replay_us']:.0f}",
            f"{row['step_us']:.0f}",
            ratio(row["ratios"]["eager PyTorch"], 1),
        )
        for row in figures["rows"]
    ]
    return table(("atoms, pairs", "call, µs", "step, µs", "eager PyTorch"), rows)


def of_threads(
    engines: Sequence[Figures], ours: str, peers: Sequence[str]
) -> Iterable[tuple[int, tuple[str, ...]]]:
    """Yield by number of threads the time of one engine, and how many times as long peers take."""
    for mine in engines:
        if mine["engine"] == ours:
            found = {each["engine"]: each for each in engines if each["threads"] == mine["threads"]}
            ratios = (times(found[peer], mine) if peer in found else "" for peer in peers)
            yield mine["threads"], (taken(mine), *ratios)


def taken(engine: Figures) -> str:
    """Return the median of an engine's times in ms, and their quartiles."""
    low, high = engine["quartiles_ms"]
    return f"{engine['median_ms']:.3g} ({low:.3g} to {high:.3g})"


def times(engine: Figures, ours: Figures) -> str:
    """Return how many times as long an engine takes."""
    return ratio(engine["median_ms"], ours["median_ms"])


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
    "neighbors_cpu.json": neighbors_cpu,
    "neighbors_gpu.json": neighbors_gpu,
    "painn_cpu.json": painn_cpu,
    "painn_gpu.json": painn_gpu,
    "pairs_cpu.json": pairs_cpu,
    "pairs_gpu.json": pairs_gpu,
    "step_cpu.json": step,
    "step_gpu.json": step,
}


if __name__ == "__main__":
    for page in pages():
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
