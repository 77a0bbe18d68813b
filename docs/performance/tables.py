"""Tables of docs/performance.md from the figures that the benchmarks wrote with ``--json`` into this folder.

    python docs/performance/tables.py

writes each anew between its markers, ``<!-- step_gpu.json -->`` and ``<!-- end -->``; a test says where page and figures differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "performance.md"
MARKED = re.compile(r"(<!-- (\w+\.json) -->\n).*?(<!-- end -->)", re.DOTALL)

Figures: TypeAlias = dict[str, Any]


def filled(page: str) -> str:
    """Return a page with each table made from the figures that its marker names."""
    return MARKED.sub(lambda found: f"{found[1]}\n{table_of(found[2])}\n{found[3]}", page)


def table_of(name: str) -> str:
    """Return the table of a file of figures."""
    figures = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return TABLES[name](figures)


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
    about = f"{device(figures['gpu'])}, torch {figures['torch'].partition('+')[0]}."
    return f"{about}\n\n{table(head, rows)}\n{table(('planes', 'µs', 'plain PyTorch, µs'), planes)}"


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
        f"{device(figures['device'])}, OpenMM {figures['versions']['openmm']}, {thousands(figures['atoms'])} atoms, "
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
    threads = f", {figures['threads']} threads" if figures["threads"] else ""
    about = f"{device(figures['device'])}{threads}."
    return f"{about}\n\n{table(('forces', 'fastest step, µs', 'median, µs', 'added'), rows)}"


def density_cpu(figures: Figures) -> str:
    """Return the times of the density's kernels on the CPU beside those of other programs."""
    parts = [f"{device(figures['processor'])}, {figures['threads']} threads where none are named.\n"]
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
    "step_cpu.json": step,
    "step_gpu.json": step,
}


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
