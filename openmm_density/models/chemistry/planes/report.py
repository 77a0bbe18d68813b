"""How flat the flat groups of a model are, by residue type."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from openmm import app
from openmm.app import Topology

from ....base.errors import InputError
from ....base.units import positions_in_angstrom, takes_units
from ....base.wording import residue_label
from .plane_set import Plane, PlaneSet


@dataclass(frozen=True)
class PlanarityRow:
    """The planes of one kind in one residue type; lengths in Å.

    Attributes
    ----------
    residue_name, kind : str
        As in `openmm_density.models.chemistry.planes.Plane`.
    n_planes : int
    rms : float
        Root mean square distance of their atoms from them.
    worst : float
        The largest of these distances.
    worst_atom : str
        The atom of that distance, as ``A HIS 57 CE1``; in a peptide plane it may be of the next residue.
    """

    residue_name: str
    kind: str
    n_planes: int
    rms: float
    worst: float
    worst_atom: str


@dataclass(frozen=True)
class PlanarityReport:
    """How flat the flat groups of a model are; lengths in Å.

    Attributes
    ----------
    n_planes : int
    rms, worst : float
        Over all planes; 0 where there are none.
    rows : tuple of PlanarityRow
        By residue type and kind, the worst first.
    dropped : tuple of str
        Groups of which fewer than four atoms are present, as ``A HIS 57 ring``.
    undetermined : tuple of str
        Residues whose planes cannot be determined from what is given.
    """

    n_planes: int
    rms: float
    worst: float
    rows: tuple[PlanarityRow, ...]
    dropped: tuple[str, ...]
    undetermined: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as plain lists, dicts and numbers."""
        return asdict(self)


@takes_units("positions")
def planarity_report(topology: Topology, planes: PlaneSet, positions: Any) -> PlanarityReport:
    """Measure how flat the flat groups of a model are.

    Parameters
    ----------
    topology : openmm.app.Topology
        In which the planes were found.
    planes : PlaneSet
        From `openmm_density.models.chemistry.planes.find_planes`, or a restraint's ``planes``.
    positions : Quantity or array_like, shape (N, 3)
        In Å without a unit.

    Raises
    ------
    InputError
        If positions are missing, or one in a plane is not a number.
    """
    positions = positions_in_angstrom(positions, topology.getNumAtoms())
    found = planes.deviations(positions)
    if not np.isfinite(found.worst).all():
        culprit = planes.planes[int(np.flatnonzero(~np.isfinite(found.worst))[0])]
        raise InputError(
            "must be finite",
            argument="positions",
            found=f"one in {culprit.residue} that is not a number",
            remedy="correct it",
        )
    atoms = list(topology.atoms())
    alike: dict[tuple[str, str], list[int]] = {}
    for index, plane in enumerate(planes.planes):
        alike.setdefault((plane.residue_name, plane.kind), []).append(index)
    rows = []
    for (residue_name, kind), indices in alike.items():
        sizes = [len(planes.planes[index].atoms) for index in indices]
        worst = indices[int(np.argmax(found.worst[indices]))]
        rows.append(
            PlanarityRow(
                residue_name,
                kind,
                len(indices),
                rms=float(np.sqrt(np.average(found.rms[indices] ** 2, weights=sizes))),
                worst=float(found.worst[worst]),
                worst_atom=_atom_label(atoms[found.worst_atom[worst]]),
            )
        )
    return PlanarityReport(
        n_planes=len(planes.planes),
        rms=planes.rms(positions),
        worst=planes.worst(positions),
        rows=tuple(sorted(rows, key=lambda row: -row.worst)),
        dropped=tuple(group_label(plane) for plane in planes.dropped),
        undetermined=planes.undetermined,
    )


def group_label(plane: Plane) -> str:
    """Return the name of a flat group in messages, as ``A ARG 36 guanidinium``."""
    return f"{plane.residue} {plane.kind}"


def _atom_label(atom: app.topology.Atom) -> str:
    return f"{residue_label(atom.residue)} {atom.name}"
