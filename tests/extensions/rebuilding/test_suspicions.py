"""Residues that fit the map worse than those around them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from openmm_density.extensions.rebuilding.molecule import Molecule
from openmm_density.extensions.rebuilding.peptide_search import turned_about
from openmm_density.extensions.rebuilding.suspicions import FALLEN, falls, unusual_torsions
from openmm_density.models import Model, read_model
from openmm_density.models.confidence import Confidence
from openmm_density.models.preparation import prepare

from .searched import Going, rebuilding_of, simulated


def test_what_fits_worse_than_all_around_it_falls_and_a_region_that_is_seen_less_does_not(
    emd6374: Model,
) -> None:
    molecule = Molecule(emd6374.topology)
    count = emd6374.topology.getNumResidues()
    alphas = emd6374.positions[[a.index for a in emd6374.topology.atoms() if a.name == "CA"]]
    # A map that fades from one end of the model to the other.
    along = np.argsort(np.argsort(alphas[:, 0])) / count
    correlations = 0.5 + 0.4 * along
    correlations[100:105] -= 0.2
    correlations[7] = np.nan
    found = falls(molecule, emd6374.positions, correlations)
    assert np.isnan(found[7]) and np.isfinite(np.delete(found, 7)).all()
    assert found[100:105].min() > 0.1 and (np.delete(found, [7, *range(100, 105)]) < 0.12).all()
    # By the median of all alone a fifth of the model would be as suspicious.
    usual = np.nanmedian(correlations) - correlations
    assert (usual > 0.1).sum() > 30 > 10 > (found > 0.1).sum()
    assert np.isnan(falls(molecule, emd6374.positions, np.full(count, np.nan))).all()


def test_a_peptide_that_is_flipped_gives_both_its_residues_unusual_torsions(emd6374: Model) -> None:
    molecule = Molecule(emd6374.topology)
    before = unusual_torsions(molecule, emd6374.positions)
    assert before.mean() < 0.05
    residues = list(emd6374.topology.residues())
    index = {atom.name: atom.index for residue in residues[150:152] for atom in residue.atoms()}
    first = {atom.name: atom.index for atom in residues[150].atoms()}
    moved = np.array([first["C"], first["O"], index["N"]])
    wrong = emd6374.positions.copy()
    wrong[moved] = turned_about(wrong[moved], wrong[[first["CA"], index["CA"]]], 180.0)
    after = unusual_torsions(molecule, wrong)
    assert after[150:152].any() and not (after != before)[np.r_[:149, 153 : len(after)]].any()


def test_what_a_prediction_is_sure_of_is_tried_only_where_the_map_contradicts_it(small_data: Path) -> None:
    model = read_model(small_data / "emd5925_frag" / "5925_native.pdb")
    plddt = np.where(np.array([atom.residue.index for atom in model.topology.atoms()]) < 50, 95.0, 60.0)
    model = replace(model, confidence=Confidence(plddt, "", None, "a test"))
    rebuilding = rebuilding_of(model, simulated(model))
    seen: list[np.ndarray] = []
    rebuilding._peptides.candidates = lambda _, suspicious, __: seen.append(suspicious) or []
    rebuilding._loops.candidates = lambda *_: []
    positions = prepare(model).positions
    rebuilding._with_flipped_peptides(positions, Going())
    unusual = unusual_torsions(rebuilding._molecule, positions)
    fallen = np.nan_to_num(rebuilding._falls(positions)) > FALLEN
    (suspicious,) = seen
    assert unusual[:50].any() and unusual[50:].any()
    assert np.array_equal(suspicious[:50], fallen[:50])
    assert np.array_equal(suspicious[50:], (fallen | unusual)[50:])
    rebuilding._registers.candidates = lambda _, unusual: seen.append(unusual) or []
    rebuilding._stretch_trials(positions, None)
    assert np.array_equal(seen[1], np.where(np.arange(len(unusual)) < 50, False, unusual))
