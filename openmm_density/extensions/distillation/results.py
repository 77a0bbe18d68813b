"""What is written beside a potential: its figures as JSON, and its learning curves as a picture."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.atomic_files import atomic_write, write_text

if TYPE_CHECKING:
    from .rounds import Distillation

SUFFIX = ".safetensors"


def paths_beside(path: str | os.PathLike[str]) -> dict[str, Path]:
    """Return the paths of ``summary``, ``picture`` and ``labels`` of a potential at a path."""
    path = Path(path)
    stem = path.with_suffix("") if path.suffix == SUFFIX else path
    ends = {"summary": ".json", "picture": ".png", "labels": ".labels"}
    return {name: stem.with_name(stem.name + end) for name, end in ends.items()}


def write_results(path: str | os.PathLike[str], found: Distillation, seconds: float) -> None:
    """Write a potential, and beside it its summary and its learning curves.

    Parameters
    ----------
    path : path-like
    found : Distillation
    seconds : float
        That it took.

    Raises
    ------
    InputError
        If a file cannot be written.
    """
    from .potential_file import write_potential

    write_potential(path, found.potential)
    beside = paths_beside(path)
    write_text(beside["summary"], json.dumps(summary(found, seconds), indent=2, allow_nan=False) + "\n")
    _draw(beside["picture"], found)


def summary(found: Distillation, seconds: float) -> dict[str, Any]:
    """Return the figures of a distillation: energies in kcal/mol, forces in kcal/mol/Å."""
    from .accuracy import FORCE_LIMIT

    potential = found.potential
    ligand = potential.ligand
    return {
        "done": potential.done,
        "limit": FORCE_LIMIT,
        "ligand": {"smiles": ligand.smiles, "charge": ligand.charge, "n_atoms": len(ligand)},
        "teacher": asdict(potential.teacher),
        "network": dict(potential.network),
        "accuracy": asdict(potential.accuracy),
        "temperatures": list(potential.temperatures),
        "rounds": [asdict(each) for each in found.rounds],
        "n_labels_computed": found.n_labels,
        "springs": found.springs,
        "settings": asdict(found.settings),
        "seed": found.seed,
        "wall_seconds": seconds,
        "created_by": potential.created_by,
    }


def _draw(path: Path, found: Distillation) -> None:
    """Draw the errors after each round against the number of geometries learned, and the loss step by step."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from .accuracy import FORCE_LIMIT

    figure = Figure(figsize=(7, 3), layout="constrained")
    FigureCanvasAgg(figure)
    losses, errors = figure.subplots(1, 2)
    for number, curve in enumerate(found.curves):
        losses.plot([step for step, _ in curve], [loss for _, loss in curve], label=f"student {number + 1}")
    losses.set(xlabel="step of training", ylabel="loss", yscale="log")
    losses.legend(frameon=False)
    counts = [each.n_geometries for each in found.rounds]
    errors.plot(
        counts, [each.accuracy.force_mae for each in found.rounds], "o-", label="mean of the students"
    )
    errors.plot(
        counts,
        [max(each.accuracy.force_mae_each) for each in found.rounds],
        "o--",
        label="the worst of them alone",
    )
    errors.plot(counts, [each.accuracy.disagreement for each in found.rounds], "s:", label="disagreement")
    errors.axhline(FORCE_LIMIT, color="#868e96", linewidth=1)
    errors.set(xlabel="geometries learned", ylabel="forces at 300 K (kcal/mol/Å)", yscale="log")
    errors.legend(frameon=False)
    for panel in (losses, errors):
        panel.spines[["top", "right"]].set_visible(False)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
