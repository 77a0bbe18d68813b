"""The calls that draw the pictures of a fit, with what each shows: in whatever process, which loads matplotlib only then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from openmm import app

from ..fitting.agreement import MOST_MARKED, ModelAgreement, poorest
from ..fitting.fit_result import FitResult
from ..fitting.flexible_fit import FlexibleFit
from ..fitting.helper_processes import MODULES, HelperResult
from ..fitting.interrupts import Stop

if TYPE_CHECKING:
    from ..maps.density_map import DensityMap
    from ..models.model import Model
    from ..validation.stretches import DoubtfulStretch

MODULES.append("openmm_density.report.plots")


class Pictures:
    """The pictures of a result's final model, drawn beside the fit where it has processes; none more once `stop` comes."""

    def __init__(
        self, folder: Path, fit: FlexibleFit, result: FitResult, agreement: ModelAgreement, stop: Stop | None
    ) -> None:
        self._folder, self._stop, self._beside = folder, stop, fit.beside
        calls = _calls(fit, result, agreement)
        # What begins beside the fit is drawn to its end.
        drawn = calls if not (self._beside.has_processes and self._is_late) else {}
        self._left_out = [name for name in calls if name not in drawn]
        self._drawn: dict[str, HelperResult[None]] = {
            name: self._beside.begin(draw, folder / name, *shown) for name, (draw, *shown) in drawn.items()
        }

    @property
    def _is_late(self) -> bool:
        return self._stop is not None and self._stop.requested

    def finish(self) -> bool:
        """Draw what is not drawn yet, remove those of an earlier fit that are left out, and tell whether all are there."""
        late = False
        for name, drawn in self._drawn.items():
            late = late or (not self._beside.has_processes and self._is_late)
            if late:
                self._left_out.append(name)
            else:
                drawn.result()
        for name in self._left_out:
            (self._folder / name).unlink(missing_ok=True)
        return not self._left_out


def _calls(
    fit: FlexibleFit, result: FitResult, agreement: ModelAgreement
) -> dict[str, tuple[Callable[..., None], Any]]:
    """Return by the name of each picture what draws it, and what is passed to that after its path."""
    reference = [] if fit.reference is None else _traces(fit.reference.topology, fit.reference.positions)
    views = [_view(result, stage, agreement) for stage in ("initial", "final")]
    return {
        "overview.png": (_overview, fit.beside.shared(fit.density_map), *views, reference),
        "residues.png": (_residues, agreement.residues, agreement.stretches),
        "progress.png": (
            _progress,
            result.rows,
            result.stages,
            # After an instability the time step is halved.
            None if result.blow_ups else fit.protocol.timestep,
            result.cc_initial,
            result.cc_reference,
            "RMSD" if agreement.matched is None else agreement.matched.rmsd,
        ),
    }


def draw_models_in_map(
    folder: Path,
    density_map: DensityMap,
    models: Mapping[str, tuple[str, Model]],
    reference: Model | None,
    residues: Sequence[dict[str, Any]],
    stretches: Sequence[DoubtfulStretch],
) -> None:
    """Draw ``overview.png`` and ``residues.png`` of models that no single fit led to."""
    views = [
        (
            title,
            _traces(model.topology, model.positions),
            *_marks_and_atoms(model.topology, model.positions, residues, stage),
        )
        for stage, (title, model) in models.items()
    ]
    traces = [] if reference is None else _traces(reference.topology, reference.positions)
    overview, by_residue = (folder / name for name in DRAWN_OF_MODELS)
    _overview(overview, density_map, *views, traces)
    _residues(by_residue, residues, stretches)


DRAWN_OF_MODELS = ("overview.png", "residues.png")


def _overview(
    path: Path,
    density_map: DensityMap,
    initial: tuple[Any, ...],
    final: tuple[Any, ...],
    reference: list[np.ndarray],
) -> None:
    from . import plots

    plots.plot_overview(path, density_map, plots.View(*initial), plots.View(*final), reference)


def _residues(path: Path, *shown: Any) -> None:
    from . import plots

    plots.plot_residues(path, *shown)


def _progress(path: Path, *shown: Any) -> None:
    from . import plots

    plots.plot_progress(path, *shown)


def _view(result: FitResult, stage: str, agreement: ModelAgreement) -> tuple[Any, ...]:
    """Return what the overview shows of the model of a stage, with its poorest residues: the arguments of a `plots.View`."""
    positions = result.initial if stage == "initial" else result.final
    cc, rmsd = (getattr(result, f"{name}_{stage}") for name in ("cc", "ca_rmsd"))
    early = result.interrupted and result.unfinished is None
    after = f"interrupted at step {result.steps}" if early else "after"
    title = f"{'before' if stage == 'initial' else after}: CC {cc:.3f}"
    if rmsd is not None and agreement.matched is not None:
        title += f", {agreement.matched.rmsd} {rmsd:.2f} Å"
    in_input = result.prepared.input_positions(positions)
    traces = _traces(result.prepared.topology, positions)
    shown = _marks_and_atoms(result.prepared.model.topology, in_input, agreement.residues, stage)
    return title, traces, *shown


def _marks_and_atoms(
    topology: app.Topology, positions: np.ndarray, residues: Sequence[dict[str, Any]], stage: str
) -> tuple[list[tuple[str, np.ndarray]], np.ndarray]:
    """Return the names and places of the poorest residues at a stage, and the positions of all atoms but waters."""
    members = [_standing_for(residue) for residue in topology.residues()]
    marks = [
        (f"{row['chain']} {row['number']}{row['insertion_code']}".strip(), positions[members[i]].mean(axis=0))
        for i, row in poorest(residues, stage)[:MOST_MARKED]
    ]
    shown = [
        atom.index
        for residue, row in zip(topology.residues(), residues, strict=True)
        if row["kind"] != "water"
        for atom in residue.atoms()
    ]
    return marks, positions[shown]


def _traces(topology: app.Topology, positions: np.ndarray) -> list[np.ndarray]:
    """Return the Cα (or P) atoms of each chain, in Å."""
    traces = []
    for chain in topology.chains():
        trace = [atom.index for atom in chain.atoms() if atom.name in ("CA", "P")]
        if len(trace) > 1:
            traces.append(positions[trace])
    return traces


def _standing_for(residue: app.topology.Residue) -> list[int]:
    """Return the atom of the trace, or all atoms of what has none."""
    trace = [atom.index for atom in residue.atoms() if atom.name in ("CA", "P")]
    return trace[:1] or [atom.index for atom in residue.atoms()]
