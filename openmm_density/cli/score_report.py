"""What a trajectory in a map comes to: correlations and what else ``openmm-density score`` is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import mdtraj
import numpy as np
from rich.table import Table
from rich.text import Text

from ..analysis import Scores, frames_in_map, fsc, q_score, score
from ..base.errors import InputError, as_argument
from ..base.progress import console_for_results
from ..base.units import ANGSTROM_PER_NANOMETER
from ..base.wording import counted, listing, residue_label
from ..maps.density_map import DensityMap
from ..maps.half_maps import check_half_maps, check_halves_of_map
from ..models.chemistry.elements import is_hydrogen
from ..models.chemistry.residues import residue_kind
from ..models.model import Model
from ..models.predictions import residue_confidence
from ..models.trajectory_files import as_openmm_topology
from ..validation.correlation import LARGEST_PART_OUTSIDE, LOW_CORRELATION
from ..validation.fsc import HALF_MAP_THRESHOLD, half_map_doubt, half_map_fsc
from ..validation.map_checks import MapChecks, check_map_units, check_map_with_model
from ..validation.q_score import SIGMA, usual_q
from ..validation.stretches import doubtful_stretches, sentences_of

if TYPE_CHECKING:
    import mdtraj

    from ..maps.density_map import DensityMap

HYDROGENS_COUNT = '{} count, which maps hardly show: --atoms "element != H" leaves them out, as fit does'


class ScoreReport:
    """The correlations of a trajectory with a map, to which other measures are added.

    `resolution` in Å; `names`: what an error calls the trajectory and the map; `spellings`: how sentences write
    arguments, see `openmm_density.base.errors.InputError.spelled`. Attributes: `found`: all figures, as JSON has them.
    Raises InputError if nothing correlates.
    """

    def __init__(
        self,
        trajectory: mdtraj.Trajectory,
        density_map: DensityMap,
        resolution: float,
        names: tuple[str, str],
        spellings: Mapping[str, str],
    ) -> None:
        self._spellings = spellings
        self._trajectory, self._map, self._resolution = trajectory, density_map, resolution
        self._last = trajectory.xyz[-1].astype(np.float64) * ANGSTROM_PER_NANOMETER
        self._scores, self._checks = self._correlated(names)
        self.found = {
            **dict(zip(("model", "map"), names)),
            **self._scores.as_dict(),
            "map_checks": self._checks.as_dict(spellings),
        }
        # What the line of each frame has, the residues' values in the last frame by their headings, and further lines.
        self._figures = [[f"CC {cc:.4f}"] for cc in self._scores.cc_mask]
        self._columns = {"CC": self._scores.residue_correlations[-1]}
        self._plddt: dict[str, np.ndarray] = {}
        hydrogens = sum(map(is_hydrogen, trajectory.topology.atoms))
        self._notes = [HYDROGENS_COUNT.format(counted(hydrogens, "hydrogen"))] if hydrogens else []
        self._remarks: list[str] = []
        self._rows: list[dict[str, Any]] = []
        self._half_map_doubt: str | None = None

    def _correlated(self, names: tuple[str, str]) -> tuple[Scores, MapChecks]:
        """Return the correlations, and what the checks of the map say with the last frame."""
        inside = frames_in_map(self._trajectory, self._map).any()
        topology = as_openmm_topology(self._trajectory.topology)
        check_map_units(self._map, topology, self._last)
        scores = score(self._trajectory, self._map, self._resolution) if inside else None
        cc = None if scores is None else float(scores.cc_mask[-1])
        checks = check_map_with_model(self._map, topology, self._last, self._resolution, cc=cc)
        if scores is None or (not np.any(scores.cc_mask) and np.isnan(scores.residue_correlations).all()):
            if checks.findings:
                raise checks.findings[0].error()
            raise InputError(
                f"no residue of {names[0]} lies in the density of {names[1]}",
                remedy=f"check that they belong together, or let a fit place the model by {as_argument('place', 'on')}",
            )
        return scores, checks

    def add_q_scores(self, sigma: float) -> None:
        """Add Q-scores, from a reference of a width in Å."""
        q = q_score(self._trajectory, self._map, sigma=sigma)
        topology = as_openmm_topology(self._trajectory.topology)
        usual = usual_q(topology, self._resolution) if sigma == SIGMA else None
        self.found |= {
            "q_score_sigma": sigma,
            "q_score": _plain(q.mean),
            "q_score_usual": usual,
            "residue_q_scores": _plain(q.residues),
        }
        self._columns["Q"] = q.residues[-1]
        for line, mean in zip(self._figures, q.mean):
            line.append(
                f"Q {mean:.4f}{'' if usual is None or len(q.mean) > 1 else f' ({usual:.2f} is usual)'}"
            )

    def add_model_fsc(self) -> None:
        """Add the Fourier shell correlation of the map and each frame."""
        curves = fsc(self._trajectory, self._map, self._resolution)
        crossings = [curve.crossing() for curve in curves]
        self.found |= {
            "fsc_resolution": _plain([crossing.resolution for crossing in crossings]),
            "fsc_falls": [crossing.falls for crossing in crossings],
            "fsc": [curve.as_dict() for curve in curves],
        }
        for line, crossing in zip(self._figures, crossings):
            line.append(f"FSC {crossing}")

    def add_half_map_fsc(self, halves: Sequence[DensityMap]) -> None:
        """Add the Fourier shell correlation of two half maps around the last frame."""
        check_half_maps(*halves)
        check_halves_of_map(*halves, self._map, self._resolution)
        curve = half_map_fsc(*halves, self._last)
        crossing = curve.crossing(HALF_MAP_THRESHOLD, dips=False)
        self.found |= {
            "half_map_resolution": _plain([crossing.resolution])[0],
            "half_map_falls": crossing.falls,
            "half_map_fsc": curve.as_dict(),
        }
        self._remarks.append(f"half maps: FSC {crossing}")
        self._half_map_doubt = half_map_doubt(crossing)

    def add_confidence(self, model: Model) -> None:
        """Add the pLDDT of each residue, if the model is a prediction."""
        plddt = residue_confidence(model)
        if plddt is None:
            return
        known = dict(zip(map(residue_label, model.topology.residues()), plddt))
        self._plddt = {"pLDDT": np.array([known.get(each, np.nan) for each in self._scores.residue_labels])}
        self.found["residue_plddt"] = _plain(self._plddt["pLDDT"])

    def add_residues(self) -> None:
        """Add the worst residues and all warnings, from the measures that were added before."""
        self._rows = residue_rows(self._trajectory.topology, self._scores.residue_labels, self._columns)
        self.found["worst_residues"] = [
            {"residue": residue, "correlation": value}
            for residue, value in worst_residues(self._rows, "CC")[:MOST_WORST]
        ]
        self.found["warnings"] = [
            *(finding.spelled(self._spellings) for finding in self._checks.findings),
            *warnings_about(
                self._trajectory, self._map, float(self._scores.cc_mask[-1]), self._rows, self._checks
            ),
            *([] if self._half_map_doubt is None else [self._half_map_doubt]),
        ]
        self.found["notes"] = self._notes

    def show(self, per_residue: bool) -> None:
        """Print the figures, and last, where a terminal still shows it, what they come to."""
        console, figures = console_for_results(), self._figures
        if per_residue:
            ending = "" if len(figures) == 1 else ", last frame"
            console.print(_table(self._scores.residue_labels, self._columns | self._plddt, ending))
        for frame, line in enumerate(figures):
            print("  ".join(line if len(figures) == 1 else [f"frame {frame:5d}", *line]))
        for remark in self._remarks:
            print(remark)
        if len(figures) > 1:
            cc = self._scores.cc_mask
            print(
                f"CC of {len(cc)} frames: mean {cc.mean():.4f}, {cc.min():.4f} to {cc.max():.4f}; of the last:"
            )
        for sentence in residue_sentences(self._rows, self._columns):
            print(sentence)
        for note in self._notes:
            print(note)
        for warning in self.found["warnings"]:
            console.print(Text.assemble(("Warning:", "bold"), f" {warning}"))
        if not per_residue:
            print("each residue: --per-residue; all figures: --json")


def _table(labels: Sequence[str], columns: Mapping[str, np.ndarray], ending: str) -> Table:
    """Return a table of the values by residue, under their names."""
    table = Table(box=None, pad_edge=False)
    table.add_column("residue")
    for name in columns:
        table.add_column(f"{name}{ending}", justify="right")
    for label, *values in zip(labels, *columns.values()):
        table.add_row(label, *("" if value != value else f"{value:.3f}" for value in values))
    return table


def _plain(values: Any) -> list[Any]:
    """Return an array as lists for JSON; None for what is not finite."""
    array = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(array), array, None).tolist()


TOLD = 5
"""How many of the worst residues are listed in words."""
MOST_WORST = 10
"""How many of the worst residues are listed in JSON, as in a fit's summary."""

_EXPLAINING = {"contrast", "box", "resolution", "place", "voxel_size", "handedness"}
"""Checks of the map whose findings explain a low correlation."""

_MEASURES = {"CC": "correlation", "Q": "q_score"}


def residue_rows(
    topology: mdtraj.Topology, labels: Sequence[str], columns: Mapping[str, np.ndarray]
) -> list[dict[str, Any]]:
    """Return a row of figures for each residue in one frame.

    `columns` (R,): values under "CC" and "Q"; NaN where there is none. Returns ``residue``, ``chain``, ``number``,
    ``insertion_code``, ``kind``, ``correlation_final`` and ``q_score_final``: names that `doubtful_stretches` reads;
    None where unknown.
    """
    rows: list[dict[str, Any]] = [
        {
            "residue": label,
            "chain": residue.chain.id,
            "number": int(residue.id),
            "insertion_code": "",
            "kind": residue_kind(residue),
        }
        for label, residue in zip(labels, as_openmm_topology(topology).residues(), strict=True)
    ]
    for name, values in columns.items():
        for row, value in zip(rows, values, strict=True):
            row[f"{_MEASURES[name]}_final"] = float(value) if np.isfinite(value) else None
    return rows


def worst_residues(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[str, float]]:
    """Return the residues other than water with their values in a column, the lowest first."""
    measure = f"{_MEASURES[name]}_final"
    known = [
        (row["residue"], row[measure]) for row in rows if row[measure] is not None and row["kind"] != "water"
    ]
    return sorted(known, key=lambda pair: pair[1])


def residue_sentences(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, np.ndarray]) -> list[str]:
    """Return a line for each column: its mean and range over the residues, and the lowest."""
    lines = []
    for name in columns:
        worst = worst_residues(rows, name)
        if not worst:
            continue
        values = [value for _, value in worst]
        named = ", ".join(f"{residue} ({value:.2f})" for residue, value in worst[:TOLD])
        lines.append(
            f"{name} of {counted(len(worst), 'residue')}: mean {np.mean(values):.3f}, {values[0]:.3f} to {values[-1]:.3f}; "
            f"lowest: {named}"
        )
    return lines


def warnings_about(
    trajectory: mdtraj.Trajectory,
    density_map: DensityMap,
    cc: float,
    rows: Sequence[Mapping[str, Any]],
    checks: MapChecks,
) -> list[str]:
    """Return a sentence for each sign that model and map do not belong together as they are, or that a part is wrong."""
    return [
        *_overall_warnings(trajectory, density_map, cc, checks),
        *_unknown_warning(rows),
        *sentences_of(doubtful_stretches(rows)),
    ]


def _overall_warnings(
    trajectory: mdtraj.Trajectory, density_map: DensityMap, cc: float, checks: MapChecks
) -> list[str]:
    sentences = []
    values = density_map.value_at(trajectory.xyz[-1] * ANGSTROM_PER_NANOMETER)
    outside = float(np.isnan(values).mean())
    if outside > LARGEST_PART_OUTSIDE:
        sentences.append(
            f"{outside:.0%} of the atoms are outside the map: check that the model is in its density."
        )
    explained = any(finding.check in _EXPLAINING for finding in checks.findings)
    if cc < LOW_CORRELATION and not explained:
        sentences.append(
            f"the correlation is low ({cc:.2f}): check that model and map belong together, the resolution, and the model's place "
            "(fit --place on finds it)."
        )
    return sentences


def _unknown_warning(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    unknown = [row["residue"] for row in rows if row["correlation_final"] is None]
    if not unknown:
        return []
    return [f"no correlation where the map is flat, as it is beyond a mask, or ends: {listing(unknown, 10)}."]
