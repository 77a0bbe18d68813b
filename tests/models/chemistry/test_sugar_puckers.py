from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openmm_density.models import Model, read_model
from openmm_density.models.chemistry.sugar_puckers import find_sugars


def test_phases_and_chi_of_the_dodecamer_are_those_of_mdtraj_and_the_field(small_data: Path) -> None:
    import mdtraj

    path = small_data / "zoo/1bna_duplex.pdb"
    model = read_model(path)
    sugars = find_sugars(model.topology)
    assert len(sugars.residues) == 24 and not sugars.is_rna.any() and not sugars.judged().any()
    # B-DNA: C2'-endo and its neighbours, all bases anti.
    phases = np.degrees(sugars.phases(model.positions))
    assert 120 < np.median(phases) < 160 and (phases > 60).mean() > 0.9
    trajectory = mdtraj.load(str(path))
    names = {(atom.residue.index, atom.name): atom.index for atom in trajectory.topology.atoms}
    for at, residue in enumerate(sugars.residues.tolist()[:12]):
        base = ("N9", "C4") if (residue, "N9") in names else ("N1", "C2")
        four = [names[residue, name] for name in ("O4'", "C1'", *base)]
        chi = mdtraj.compute_dihedrals(trajectory, [four])[0, 0]
        assert sugars.chi[at].tolist() == four and abs(np.degrees(chi)) > 85
    # By the definition: ν_j = ν_max cos(P + 144° (j - 2)) fits the five torsions of the ring.
    from openmm_density.models.chemistry.torsions import torsion_angles

    nu = torsion_angles(model.positions, sugars.ring_torsions.reshape(-1, 4)).reshape(-1, 5)
    waves = np.cos(np.radians(phases)[:, None] + np.radians(144) * (np.arange(5) - 2))
    amplitude = (nu * waves).sum(axis=1) / (waves**2).sum(axis=1)
    assert np.degrees(np.abs(nu - amplitude[:, None] * waves).max()) < 5
    assert np.degrees(amplitude).min() > 25 and np.degrees(amplitude).max() < 60


def test_pperp_tells_the_two_puckers_of_rna_apart(rna: Model) -> None:
    sugars = find_sugars(rna.topology)
    phases = np.degrees(sugars.phases(rna.positions))
    perpendicular = sugars.perpendiculars(rna.positions)
    assert sugars.is_rna.all() and np.isnan(perpendicular).sum() == 1  # the last has no phosphate behind it
    atoms = {(atom.residue.index, atom.name): rna.positions[atom.index] for atom in rna.topology.atoms()}
    for residue in (1, 8, 20):  # by hand
        base = atoms.get((residue, "N9"), atoms[residue, "N1"])
        line = base - atoms[residue, "C1'"]
        away = atoms[residue + 1, "P"] - base
        foot = base + line * (away @ line) / (line @ line)
        assert perpendicular[residue] == pytest.approx(
            np.linalg.norm(atoms[residue + 1, "P"] - foot), abs=1e-5
        )
    known = np.isfinite(perpendicular)
    agrees = (np.abs(phases) > 90) == (perpendicular < 2.9)
    assert agrees[known].all()


def test_a_pucker_that_contradicts_pperp_is_an_outlier(rna: Model) -> None:
    sugars = find_sugars(rna.topology)
    assert sugars.judged().sum() == 82
    outliers = sugars.outliers(rna.positions)
    numbers = [int(residue.id) for residue in rna.topology.residues()]
    # δ of U 12 is between the two ranges; ε of A 1 is unusual.
    assert [numbers[residue] for residue in sugars.residues[outliers]] == [1, 12]
    moved = rna.positions.copy()
    phosphorus = sugars.epsilon[20, 3]
    origin, end = moved[sugars.chi[20, 1]], moved[sugars.chi[20, 2]]
    line = (end - origin) / np.linalg.norm(end - origin)
    foot = origin + line * ((moved[phosphorus] - origin) @ line)
    moved[phosphorus] = foot + 0.4 * (moved[phosphorus] - foot)
    assert sugars.outliers(moved)[20] and not outliers[20]
