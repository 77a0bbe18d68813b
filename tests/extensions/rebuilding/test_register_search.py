"""The search for stretches that are out of register."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from openmm import app

from openmm_density import DensityMap
from openmm_density.extensions.rebuilding.molecule import Molecule
from openmm_density.extensions.rebuilding.register_search import FLANK, RegisterSearch, Stretch
from openmm_density.extensions.rebuilding.suspicions import falls
from openmm_density.models import Model, read_model
from openmm_density.validation.correlation import MapCorrelation

RESOLUTION = 3.0


@pytest.fixture(scope="module")
def search(emd6374: Model) -> RegisterSearch:
    return RegisterSearch(emd6374.topology)


def alpha_carbons(model: Model) -> np.ndarray:
    return np.array([atom.index for atom in model.topology.atoms() if atom.name == "CA"])


def test_a_shifted_stretch_lies_where_its_neighbours_lay(emd6374: Model, search: RegisterSearch) -> None:
    (chain,) = search.chains
    carbons = alpha_carbons(emd6374)
    for by in (1, -1):
        shifted = search.shifted(emd6374.positions, [Stretch(chain, 120, 135)], by)
        core = np.arange(120, 136)
        np.testing.assert_allclose(shifted[carbons[core]], emd6374.positions[carbons[core + by]], atol=1e-9)
        rest = np.setdiff1d(np.arange(len(chain)), np.arange(120 - FLANK, 136 + FLANK))
        np.testing.assert_array_equal(shifted[carbons[rest]], emd6374.positions[carbons[rest]])
        # Flanks follow, the less the farther away they are.
        steps = np.linalg.norm(shifted[carbons] - emd6374.positions[carbons], axis=1)[136 : 136 + FLANK]
        assert (np.diff(steps) < 0).all() and 0 < steps[-1] < steps[0] < 3.8
    # Residues keep their shape and chirality.
    atoms = search.atoms_of(Stretch(chain, 120, 135).region)
    assert set(np.flatnonzero((shifted != emd6374.positions).any(axis=1))) <= set(atoms.tolist())
    for residue in emd6374.topology.residues():
        if 120 <= residue.index <= 135:
            own = [atom.index for atom in residue.atoms()]
            before, after = (
                np.linalg.norm(x[own][:, None] - x[own], axis=-1) for x in (emd6374.positions, shifted)
            )
            np.testing.assert_allclose(after, before, atol=1e-9)
            sides = [np.linalg.det(x[own[1:4]] - x[own[0]]) for x in (emd6374.positions, shifted)]
            assert sides[0] == pytest.approx(sides[1], abs=1e-9)


def test_there_and_back_is_where_it_was(emd6374: Model, search: RegisterSearch) -> None:
    (chain,) = search.chains
    carbons = alpha_carbons(emd6374)
    stretch = Stretch(chain, 120, 135)
    back = search.shifted(search.shifted(emd6374.positions, [stretch], 1), [stretch], -1)
    core = carbons[121:136]
    np.testing.assert_allclose(back[core], emd6374.positions[core], atol=1e-9)


def test_a_stretch_out_of_register_is_doubtful(emd6374: Model, search: RegisterSearch) -> None:
    simulated = DensityMap.simulate(emd6374.topology, emd6374.positions, RESOLUTION, 1.0, noise=0.1, seed=1)
    correlation = MapCorrelation(simulated, emd6374.topology, RESOLUTION)
    molecule = Molecule(emd6374.topology)

    def candidates(positions: np.ndarray) -> list[list[Stretch]]:
        return search.candidates(falls(molecule, positions, correlation.residue_correlations(positions)))

    assert candidates(emd6374.positions) == []
    (chain,) = search.chains
    wrong = search.shifted(emd6374.positions, [Stretch(chain, 60, 70), Stretch(chain, 150, 165)], 1)
    found = candidates(wrong)
    for begin, end in ((60, 70), (150, 165)):
        # To a few residues, which flanks make good.
        assert any(
            abs(stretch.first - begin) <= FLANK and abs(stretch.last - end) <= FLANK
            for stretches in found
            for stretch in stretches
        )
    # Residues 105 to 113 touch what was shifted, and fall by as much as is doubted.
    core = np.arange(116, 136)
    assert not any(np.isin(core, stretch.region).any() for stretches in found for stretch in stretches)


def test_stretches_stay_within_their_chains(small_data: Path) -> None:
    tetramer = read_model(small_data / "emd3488_5ni1/5me2.pdb")
    search = RegisterSearch(tetramer.topology)
    residues = list(tetramer.topology.residues())
    assert [len(chain) for chain in search.chains] == [110, 110, 110, 110]
    for chain in search.chains:
        assert len({residues[i].chain.index for i in chain}) == 1
    falls = np.random.default_rng(2).uniform(-0.3, 0.3, len(residues))
    falls[::17] = np.nan
    found = search.candidates(falls)
    assert found and all(found) and max(map(len, found)) > 1
    for stretch in (stretch for stretches in found for stretch in stretches):
        assert 1 <= stretch.last - stretch.first + 1 <= 40
        assert {residues[i].chain.index for i in stretch.region} == {residues[stretch.chain[0]].chain.index}


def test_gaps_end_chains_and_models_without_protein_have_none(small_data: Path) -> None:
    broken = read_model(small_data / "emd21457_ntd/6vyb_Ndom.pdb")
    search = RegisterSearch(broken.topology)
    for chain in search.chains:
        carbons = [
            atom.index
            for residue in broken.topology.residues()
            if residue.index in set(chain.tolist())
            for atom in residue.atoms()
            if atom.name == "CA"
        ]
        assert np.linalg.norm(np.diff(broken.positions[carbons], axis=0), axis=1).max(initial=0) < 4.5
    empty = RegisterSearch(app.Topology())
    assert empty.chains == [] and empty.candidates(np.zeros(0)) == []
