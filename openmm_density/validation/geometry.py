"""The geometry of a model in one report: bonds, angles, clashes, torsions, peptide planes and handedness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from openmm import app

from ..base.errors import InputError
from ..base.wording import residue_label
from ..maps.grids import checked_positions
from ..models.chemistry.ideal_geometry import angles_at, bond_angles, heavy_bonds, ideal_values, lengths_of
from ..models.chemistry.ramachandran_tables import (
    ALLOWED,
    CELL,
    CENTRES,
    FAVOURED,
    BackboneTorsions,
    backbone_torsions,
    ramachandran_tables,
)
from ..models.chemistry.residues import is_d_amino_acid
from ..models.chemistry.side_chains import LARGEST_DEVIATION, from_staggered, side_chain_torsions
from ..models.chemistry.stereocentres import chiral_centres
from ..models.chemistry.topologies import hydrogen_mask
from ..models.chemistry.torsions import peptide_torsions, torsion_angles
from .all_atom_contacts import AllAtoms, RidingHydrogens
from .beta_carbons import LARGE_DEVIATION, BetaCarbons
from .ideal_values import OUTLIER, GeometryScores, IdealValues
from .metals import MetalReport, Metals
from .nucleic_acids import NucleicAcidReport, NucleicAcids, base_pair_changes
from .sugars import SugarReport, SugarRings

TWISTED = np.radians(30.0)
"""Deviation of ω from planarity at which a peptide counts as twisted."""


@dataclass(frozen=True)
class GeometryReport:
    """How good a model's geometry is; heavy atoms only."""

    # `bond_count`, `angle_count`: bonds and angles that have an ideal value: those inside and between standard
    # residues.
    bond_count: int
    # `bond_rmsd`, `worst_bond`: deviations from the ideal length, Å; nan where there are none. The ideal values are
    # those of Amber ff14SB, OL15 and OL3, which differ from crystallographic ones by 0.01-0.02 Å: a well-refined
    # model has an RMSD of about 0.02 Å.
    bond_rmsd: float
    worst_bond: float
    worst_bond_atoms: str  # `worst_bond_atoms`, `worst_angle_atoms`: where the worst ones are.
    angle_count: int
    # `angle_rmsd`, `worst_angle`: deviations from the ideal angle, degrees; well-refined models have about 2. Angles
    # at the atoms of histidine's ring are left out: Amber has 120° there, which no five-membered ring can have.
    angle_rmsd: float
    worst_angle: float
    worst_angle_atoms: str
    atom_count: int  # Heavy atoms
    # `clash_count`, `clashscore`: clashes, and for each 1000 atoms, by MolProbity's definition, see `AllAtoms.contacts`;
    # None without hydrogens, see `geometry_of_model`.
    clash_count: int | None
    clashscore: float | None
    # Of bonds and angles against the ideal values of the CCP4 monomer library, as depositions are judged, see
    # `geometry_scores`: how many have one, the root mean square Z-scores, and how many are beyond 5 standard deviations.
    bond_z_count: int
    bond_rmsz: float
    bond_outlier_count: int
    angle_z_count: int
    angle_rmsz: float
    angle_outlier_count: int
    beyond_4_count: int  # Bonds and angles beyond 4 standard deviations
    z_outliers: list[str]  # Those beyond 5, bonds first, the worst of each first
    # `cis_count`, `cis_nonproline_count`: peptides with |ω| < 90°, and those of them not before proline.
    cis_count: int
    cis_nonproline_count: int
    twisted_count: int  # Peptides more than 30° from planar
    # `wrong_alpha_count`, `wrong_centre_count`: Cα, and other centres (Cβ of Thr and Ile, sugars), of the wrong
    # handedness. Residues that are D by name count as wrong if they are L.
    wrong_alpha_count: int
    wrong_centre_count: int
    wrong_centres: list[str]  # Where they are
    # Residues with both backbone torsions. This and the next are None without the tables of the package pyrama.
    ramachandran_count: int | None
    # `ramachandran_favoured_count`, `ramachandran_allowed_count`, `ramachandran_outlier_count`: those in each of the
    # regions of Lovell et al. (2003), see `ramachandran`.
    ramachandran_favoured_count: int | None
    ramachandran_allowed_count: int | None
    ramachandran_outlier_count: int | None
    ramachandran_outliers: list[str] | None  # The residues in neither
    # `rotamer_count`, `rotamer_outlier_count`: side chains with a torsion between tetrahedral atoms, and those with
    # one more than 40° from staggered, see `rotamer_deviations`. MolProbity's outliers are by another definition.
    rotamer_count: int
    rotamer_outlier_count: int
    rotamer_outliers: list[str]  # Where they are
    # `c_beta_count`, `c_beta_outlier_count`: Cβ, and those 0.25 Å or more from where the backbone has them, see `BetaCarbons`.
    c_beta_count: int
    c_beta_outlier_count: int
    c_beta_outliers: list[str]  # Where they are
    nucleic_acids: NucleicAcidReport = field(repr=False)
    sugars: SugarReport = field(repr=False)
    metals: MetalReport = field(repr=False)
    notes: list[str]  # A sentence for each thing that could not be assessed
    peptides: tuple[str, ...] = field(repr=False)  # `peptides`, `centres`: names of all peptides and centres.
    omega: np.ndarray = field(repr=False)  # `omega`, `improper`: their torsions, radians.
    centres: tuple[str, ...] = field(repr=False)
    improper: np.ndarray = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return numbers and names without the lists of all peptides and centres; None for faults of what there is none of."""
        left_out = {"peptides", "omega", "centres", "improper", "nucleic_acids", "sugars", "metals"}
        values = {name: value for name, value in self.__dict__.items() if name not in left_out}
        for name, count in (
            ("ramachandran_outlier_count", self.ramachandran_count),
            ("rotamer_outlier_count", self.rotamer_count),
            ("c_beta_outlier_count", self.c_beta_count),
            ("twisted_count", len(self.peptides)),
            ("wrong_alpha_count", sum(name.endswith(" CA") for name in self.centres)),
        ):
            if not count:
                values[name] = None
        values |= self.nucleic_acids.as_dict() | self.sugars.as_dict() | self.metals.as_dict()
        return {
            name: None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in values.items()
        }


@dataclass(frozen=True)
class GeometryChange:
    """Peptides and chiral centres that flipped between two models of the same atoms."""

    peptide_flips: list[str]  # Peptides whose ω changed by more than 90°
    inverted_centres: list[str]  # Chiral centres that changed handedness
    # `base_pairs_lost`, `base_pairs_gained`: of nucleic acids, those that only the model before, or after, has.
    base_pairs_lost: list[str]
    base_pairs_gained: list[str]
    pyranose_changes: list[str]  # Sugars whose ring or anomer is another one: see `SugarReport.changes`
    metal_changes: list[str]  # Metals that bind other atoms: see `MetalReport.changes`
    largest_omega_change: float  # Degrees; 0 where there are no peptides

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as plain lists and numbers."""
        return dict(self.__dict__)


def geometry_report(topology: app.Topology, positions: Any) -> GeometryReport:
    """Assess a model's geometry; clashes of one with hydrogens alone. `positions` (N, 3) in Å where plain."""
    return ModelGeometry(topology).report(positions)


class ModelGeometry:
    """What of a topology its geometry is assessed by, found once for many positions; `dictionaries` tell ideal values."""

    def __init__(self, topology: app.Topology, dictionaries: Any = ()) -> None:
        self._topology = topology
        self._atoms = list(topology.atoms())
        self._n_heavy = int((~hydrogen_mask(topology)).sum())
        self._bonds = heavy_bonds(topology)
        self._angles = bond_angles(self._bonds)
        self._ideal = ideal_values(topology, self._bonds, self._angles)
        self._scored = IdealValues(topology, dictionaries=dictionaries)
        self._nucleic_acids = NucleicAcids(topology)
        self._sugars, self._metals = SugarRings(topology), Metals(topology)
        self._beta_carbons = BetaCarbons(topology)
        self._peptides, self._centres = peptide_torsions(topology), chiral_centres(topology)
        self._backbone, self._side_chains = backbone_torsions(topology), side_chain_torsions(topology)
        self._peptide_names = tuple(_describe(self._atoms, each[[0, 3]]) for each in self._peptides)
        self._centre_names = tuple(_describe(self._atoms, each[:1]) for each in self._centres)

    @cached_property
    def _contacts(self) -> tuple[RidingHydrogens, AllAtoms]:
        return RidingHydrogens(self._topology), AllAtoms(self._topology)

    def report(self, positions: Any, clashes: bool = True) -> GeometryReport:
        """Return the geometry of the model at positions (N, 3), in Å where plain; clashes only of one with hydrogens."""
        atoms, topology = self._atoms, self._topology
        positions = checked_positions(positions, len(atoms), topology)
        lengths, degrees = self._ideal
        contacts = None
        if clashes and self._n_heavy < len(atoms):
            riding, all_atoms = self._contacts
            contacts = all_atoms.contacts(riding.at(positions))
        omega = torsion_angles(positions, self._peptides)
        improper = torsion_angles(positions, self._centres)
        backbone = _ramachandran_fields(topology, _in_plot(self._backbone.at(positions), positions))
        scores = self._scored.scores(positions)
        return GeometryReport(
            **_deviations("bond", atoms, self._bonds, lengths_of(positions, self._bonds) - lengths),
            **_deviations("angle", atoms, self._angles, angles_at(positions, self._angles) - degrees),
            atom_count=self._n_heavy,
            clash_count=None if contacts is None else len(contacts.clashes),
            clashscore=None if contacts is None else contacts.clashscore,
            **_score_fields(scores),
            **_peptide_fields(atoms, self._peptides, omega),
            **_chirality_fields(atoms, self._centres, improper, self._centre_names),
            **backbone,
            **_rotamer_fields(topology, rotamer_deviations(self._side_chains, positions)),
            **_beta_carbon_fields(topology, self._beta_carbons, positions),
            nucleic_acids=self._nucleic_acids.report(positions),
            sugars=self._sugars.report(positions),
            metals=self._metals.report(positions),
            notes=[*([TABLES_MISSING] if backbone["ramachandran_count"] is None else []), *scores.notes],
            peptides=self._peptide_names,
            omega=omega,
            centres=self._centre_names,
            improper=improper,
        )


def _deviations(
    kind: str, atoms: Sequence[app.topology.Atom], members: np.ndarray, errors: np.ndarray
) -> dict[str, Any]:
    """Return number, RMSD and worst of the deviations of bonds or angles from their ideal values, nan where there is none."""
    known = np.isfinite(errors)
    members, errors = members[known], np.abs(errors[known])
    worst = int(np.argmax(errors)) if len(errors) else None
    return {
        f"{kind}_count": len(errors),
        f"{kind}_rmsd": float(np.sqrt(np.mean(errors**2))) if len(errors) else float("nan"),
        f"worst_{kind}": float("nan") if worst is None else float(errors[worst]),
        f"worst_{kind}_atoms": "" if worst is None else _describe(atoms, members[worst]),
    }


def _score_fields(scores: GeometryScores) -> dict[str, Any]:
    return {
        "bond_z_count": scores.n_bonds,
        "bond_rmsz": scores.bond_rmsz,
        "bond_outlier_count": scores.beyond(OUTLIER, "bond"),
        "angle_z_count": scores.n_angles,
        "angle_rmsz": scores.angle_rmsz,
        "angle_outlier_count": scores.beyond(OUTLIER, "angle"),
        "beyond_4_count": len(scores.outliers),
        "z_outliers": [" - ".join(each.atoms) for each in scores.outliers if abs(each.z) > OUTLIER],
    }


def _peptide_fields(
    atoms: Sequence[app.topology.Atom], peptides: np.ndarray, omega: np.ndarray
) -> dict[str, Any]:
    cis = np.abs(omega) < np.pi / 2
    proline = np.array([atoms[i].residue.name == "PRO" for i in peptides[:, 2]], dtype=bool)
    from_planar = np.minimum(np.abs(omega), np.pi - np.abs(omega))
    return {
        "cis_count": int(cis.sum()),
        "cis_nonproline_count": int((cis & ~proline).sum()),
        "twisted_count": int((from_planar > TWISTED).sum()),
    }


def _chirality_fields(
    atoms: Sequence[app.topology.Atom], centres: np.ndarray, improper: np.ndarray, names: Sequence[str]
) -> dict[str, Any]:
    alpha = np.array([atoms[i].name == "CA" for i in centres[:, 0]], dtype=bool)
    is_d = np.array([is_d_amino_acid(atoms[i].residue.name) for i in centres[:, 0]], dtype=bool)
    wrong = (improper < 0) != (is_d & alpha)
    return {
        "wrong_alpha_count": int((wrong & alpha).sum()),
        "wrong_centre_count": int((wrong & ~alpha).sum()),
        "wrong_centres": [name for name, bad in zip(names, wrong) if bad],
    }


def _rotamer_fields(topology: app.Topology, chains: RotamerDeviations) -> dict[str, Any]:
    residues = list(topology.residues())
    eclipsed = chains.residues[chains.eclipsed]
    return {
        "rotamer_count": len(chains.residues),
        "rotamer_outlier_count": len(eclipsed),
        "rotamer_outliers": [residue_label(residues[i]) for i in eclipsed],
    }


def _beta_carbon_fields(
    topology: app.Topology, carbons: BetaCarbons, positions: np.ndarray
) -> dict[str, Any]:
    residues = list(topology.residues())
    outliers = carbons.residues[carbons.deviations(positions) >= LARGE_DEVIATION]
    return {
        "c_beta_count": len(carbons.residues),
        "c_beta_outlier_count": len(outliers),
        "c_beta_outliers": [residue_label(residues[i]) for i in outliers],
    }


def compare_geometry(before: GeometryReport, after: GeometryReport) -> GeometryChange:
    """Return which peptides changed between cis and trans and which centres changed handedness between two reports."""
    if before.peptides != after.peptides or before.centres != after.centres:
        raise InputError(
            "the two geometry reports are of different models",
            found=f"{len(before.peptides)} and {len(after.peptides)} peptides, "
            f"{len(before.centres)} and {len(after.centres)} centres",
            remedy="give two of the same atoms",
        )
    turned = np.abs(np.mod(after.omega - before.omega + np.pi, 2 * np.pi) - np.pi)
    inverted = (before.improper < 0) != (after.improper < 0)
    return GeometryChange(
        peptide_flips=[name for name, change in zip(before.peptides, turned) if change > np.pi / 2],
        inverted_centres=[name for name, changed in zip(before.centres, inverted) if changed],
        **base_pair_changes(before.nucleic_acids, after.nucleic_acids),
        pyranose_changes=before.sugars.changes(after.sugars),
        metal_changes=before.metals.changes(after.metals),
        largest_omega_change=float(np.degrees(turned.max(initial=0.0))),
    )


def _ramachandran_fields(topology: app.Topology, found: Ramachandran) -> dict[str, Any]:
    if found.regions is None:
        parts = ("count", "favoured_count", "allowed_count", "outlier_count", "outliers")
        return {f"ramachandran_{part}": None for part in parts}
    residues = list(topology.residues())
    outliers = [residue_label(residues[i]) for i in found.residues[found.regions == "."]]
    return {
        "ramachandran_count": len(found.residues),
        "ramachandran_favoured_count": int((found.regions == "F").sum()),
        "ramachandran_allowed_count": int((found.regions == "a").sum()),
        "ramachandran_outlier_count": len(outliers),
        "ramachandran_outliers": outliers,
    }


def _describe(atoms: Sequence[app.topology.Atom], indices: np.ndarray) -> str:
    """Name atoms as in ``A LYS 45 CA - A GLY 46 N``."""
    return " - ".join(f"{residue_label(atoms[i].residue)} {atoms[i].name}" for i in indices)


TABLES_MISSING = (
    "The Ramachandran plot was left out, because the tables of pyrama were not found or not readable; to have them: "
    "pip install pyrama"
)
"""What to tell a user for whom `Ramachandran.regions` is None."""


@dataclass(frozen=True)
class Ramachandran:
    """The backbone torsions of a model's residues, and the regions that they lie in."""

    residues: np.ndarray  # int (R,), indices of the residues that have both torsions
    phi: np.ndarray  # `phi`, `psi` (R,): radians; of D-amino acids with the opposite sign.
    psi: np.ndarray
    # (R,), "F" for favoured, "a" for allowed, "." for neither; None without the tables, see `TABLES_MISSING`
    regions: np.ndarray | None


def ramachandran(topology: app.Topology, positions: np.ndarray) -> Ramachandran:
    """Find where the residues of a model lie in the Ramachandran plot.

    The regions are those of Lovell et al., Proteins 50, 437 (2003), from the Top500 structures, for glycine, proline, residues
    before proline and all others. Their tables, in cells of 2°, come with the package ``pyrama``. MolProbity now has newer
    ones, from 8000 structures, and interpolates: near a border a residue can come out otherwise there. `positions` (N, 3) in
    Å.
    """
    return _in_plot(backbone_torsions(topology, positions), positions)


def _in_plot(found: BackboneTorsions, positions: np.ndarray) -> Ramachandran:
    phi = found.handedness * torsion_angles(positions, found.atoms[:, :4])
    psi = found.handedness * torsion_angles(positions, found.atoms[:, 1:])
    return Ramachandran(found.residues, phi, psi, _regions(found.plots, phi, psi))


def _regions(plots: np.ndarray, phi: np.ndarray, psi: np.ndarray) -> np.ndarray | None:
    tables = ramachandran_tables()
    if tables is None:
        return None
    phi_cells, psi_cells = (
        np.floor((np.degrees(angle) + 180.0) / CELL).astype(np.int64) % len(CENTRES) for angle in (phi, psi)
    )
    regions = np.full(len(plots), ".", dtype="<U1")
    for plot, allowed in ALLOWED.items():
        members = np.flatnonzero(plots == plot)
        usual = tables[plot][phi_cells[members], psi_cells[members]]
        regions[members[usual >= allowed]] = "a"
        regions[members[usual >= FAVOURED]] = "F"
    return regions


@dataclass(frozen=True)
class RotamerDeviations:
    """Deviations of the side chains of a model from staggered torsions."""

    residues: np.ndarray  # int (R,), indices of the residues that have a torsion between tetrahedral atoms
    deviations: np.ndarray  # (R,), radians from staggered, 0 … π/3, of the worst such torsion of each

    @property
    def eclipsed(self) -> np.ndarray:
        """Whether each residue is a rotamer outlier, shape (R,)."""
        return self.deviations > LARGEST_DEVIATION


def rotamer_deviations(
    side_chains: tuple[np.ndarray, np.ndarray], positions: np.ndarray
) -> RotamerDeviations:
    """Return the deviations from staggered torsions, near −60°, 60° and 180° (Lovell et al., Proteins 40, 389 (2000)).

    A side chain with one more than 40° from all of these is no rotamer. The converse does not hold: MolProbity's outliers, from
    multidimensional tables, include rare combinations. `side_chains`: of `side_chain_torsions`; `positions` (N, 3) in Å.
    """
    torsions, owners = side_chains
    deviations = np.abs(from_staggered(torsion_angles(positions, torsions)))
    residues, which = np.unique(owners, return_inverse=True)
    worst = np.zeros(len(residues))
    np.maximum.at(worst, which, deviations)
    return RotamerDeviations(residues, worst)
