"""What came of the fit of a crystal: its cycles, and which of them is the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...base.wording import listing
from ..crystals import Phased
from ..deposition import diffraction_figures
from .cycles import Cycle

PATIENCE = 2
"""Cycles without a lower R-free after which a fit ends: one alone may be chance."""


@dataclass(frozen=True)
class CrystalResult:
    """What came of the fit of a crystal.

    Attributes
    ----------
    folder : Path
        Whose ``fitted.*`` are those of the best cycle, or the start where no cycle is better.
    cycles : sequence of Cycle
        The start, then each cycle.
    phased : Phased
        What the result makes of the data; its map is one that is looked at.
    summary : dict
        As ``summary.json`` has it.
    """

    folder: Path
    cycles: Sequence[Cycle]
    phased: Phased
    summary: dict[str, Any]

    @property
    def best(self) -> Cycle:
        """The cycle whose model is the result; number 0 is the start, as it was."""
        return self.cycles[self.summary["crystal"]["best_cycle"]]


def best_cycle(cycles: Sequence[Cycle]) -> Cycle:
    """Return the one with the lowest R-free of the start and all cycles, the first where there are several."""
    return min(cycles, key=lambda cycle: (cycle.r_free, cycle.number))


def is_over(cycles: Sequence[Cycle]) -> bool:
    """Return whether R-free has not fallen below its lowest for the last cycles."""
    values = [cycle.r_free for cycle in cycles]
    return len(values) > PATIENCE and min(values[-PATIENCE:]) >= min(values[:-PATIENCE])


def crystal_summary(cycles: Sequence[Cycle], best: Cycle, phased: Phased) -> dict[str, Any]:
    """Return the section ``crystal`` of ``summary.json``, of cycles the best of which is the result."""
    data = phased.reflections
    scaled = phased.scaled
    return {
        "cycles": [asdict(cycle) for cycle in cycles],
        "best_cycle": best.number,
        "r_work_initial": cycles[0].r_work,
        "r_free_initial": cycles[0].r_free,
        "r_work": best.r_work,
        "r_free": best.r_free,
        "r_free_error": phased.r_factors.r_free_error,
        "shells": phased.r_factors.as_dict()["shells"],
        "resolution": data.resolution,
        "space_group": data.space_group.xhm(),
        "cell": list(data.cell.parameters),
        "n_work": phased.r_factors.n_work,
        "n_free": phased.r_factors.n_free,
        "completeness": len(data) / len(phased.hkl),
        "data": diffraction_figures(phased).as_dict(),
        "n_sigma_a": phased.sigma_a.n_used,
        "solvent_density": scaled.solvent_density,
        "solvent_b": scaled.solvent_b,
        "b_tensor": list(scaled.b_tensor),
        "notes": list(data.notes),
    }


def crystal_doubts(cycles: Sequence[Cycle], best: Cycle) -> list[str]:
    """Return a sentence on each thing that speaks against the result, which is the model of the best cycle."""
    start, fitted = cycles[0], best_cycle(cycles[1:])
    doubts = []
    if start.r_free <= fitted.r_free:
        kept = "keep the model as it was"
        if best.number == 0:
            kept = "the result is the start as it was, and after.* hold what the first cycle made of it"
        doubts.append(
            f"No cycle has a lower R-free than the start ({start.r_free:.4f}; {fitted.r_free:.4f} in cycle {fitted.number}): "
            f"{kept}. (That of a start which was refined against these free reflections is too low to compare with.)"
        )
    if best.r_free - best.r_work > WIDE:
        doubts.append(f"R-free is {best.r_free - best.r_work:.3f} above R-work: the model is overfitted.")
    return [*doubts, *place_doubts(best)]


def place_doubts(cycle: Cycle) -> list[str]:
    """Return a sentence where a model explains no more of the data than atoms at random do."""
    if cycle.r_free <= RANDOM:
        return []
    return [
        f"R-free is {cycle.r_free:.2f}, near that of atoms at random (0.59): the model may lie elsewhere in the cell, or not "
        "belong to the data."
    ]


def cycles_note(cycles: Sequence[Cycle], best: Cycle) -> list[str]:
    """Return a sentence where a fit came to its last cycle while R-free was falling yet."""
    if best.number == 0 or best is not cycles[-1]:
        return []
    fallen = min(cycle.r_free for cycle in cycles[:-1]) - best.r_free
    done = "the only cycle" if len(cycles) == 2 else f"cycle {best.number}, the last one"
    return [f"R-free still fell in {done} (by {fallen:.4f}): give more cycles."]


def interruption_in_words(number: int, best: Cycle) -> str:
    """Return a sentence on a fit that a signal ended in a cycle, the best of which so far is the result."""
    result = "the start as it was" if best.number == 0 else f"the model of cycle {best.number}"
    return f"the fit was interrupted in cycle {number}: the result so far is {result}. Go on with the fit before you judge it."


def handedness_doubts(summary: Mapping[str, Any]) -> list[str]:
    """Return a sentence on the centres of the fitted model that have the wrong chirality."""
    wrong = summary["geometry_final"]["wrong_centres"]
    if not wrong:
        return []
    return [f"centres of the wrong handedness: {listing(wrong, 10)}: look at the model there."]


WIDE, RANDOM = 0.10, 0.50
