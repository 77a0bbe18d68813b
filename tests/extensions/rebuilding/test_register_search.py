"""The search for stretches that are out of register."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.extensions.rebuilding.molecule import Molecule
from openmm_density.extensions.rebuilding.register_search import FLANK, RegisterSearch, Stretch
from openmm_density.extensions.rebuilding.suspicions import falls
from openmm_density.models import Model, read_model
from openmm_density.validation.correlation import MapCorrelation

RESOLUTION = 3.0


@pytest.fixture(scope="module")
def native(small_data: Path) -> Model:
    return read_model(small_data / "emd6374_frag/6374_native.pdb")


@pytest.fixture(scope="module")
def search(native: Model) -> RegisterSearch:
    return RegisterSearch(native.topology)


def alpha_carbons(model: Model) -> np.ndarray:
    return np.array([atom.index for atom in model.topology.atoms() if atom.name == "CA"])


def test_a_shifted_stretch_lies_where_its_neighbours_lay(native: Model, search: RegisterSearch) -> None:
    (chain,) = search.chains
    carbons = alpha_carbons(native)
    for by in (1, -1):
        shifted = search.shifted(native.positions, [Stretch(chain, 120, 135)], by)
        core = np.arange(120, 136)
        np.testing.assert_allclose(shifted[carbons[core]], native.positions[carbons[core + by]], atol=1e-9)
        rest = np.setdiff1d(np.arange(len(chain)), np.arange(120 - FLANK, 136 + FLANK))
        np.testing.assert_array_equal(shifted[carbons[rest]], native.positions[carbons[rest]])
        # Flanks follow, the less the farther away they are.
        steps = np.linalg.norm(shifted[carbons] - native.positions[carbons], axis=1)[136 : 136 + FLANK]
        assert (np.diff(steps) < 0).all() and 0 < steps[-1] < steps[0] < 3.8
    # Residues keep their shape and chirality.
    atoms = search.atoms_of(Stretch(chain, 120, 135).region)
    assert set(np.flatnonzero((shifted != native.positions).any(axis=1))) <= set(atoms.tolist())
    for residue in native.topology.residues():
        if 120 <= residue.index <= 135:
            own = [atom.index for atom in residue.atoms()]
            before, after = (
                np.linalg.norm(x[own][:, None] - x[own], axis=-1) for x in (native.positions, shifted)
            )
            np.testing.assert_allclose(after, before, atol=1e-9)
            sides = [np.linalg.det(x[own[1:4]] - x[own[0]]) for x in (native.positions, shifted)]
            assert sides[0] == pytest.approx(sides[1], abs=1e-9)


def test_there_and_back_is_where_it_was(native: Model, search: RegisterSearch) -> None:
    (chain,) = search.chains
    carbons = alpha_carbons(native)
    stretch = Stretch(chain, 120, 135)
    back = search.shifted(search.shifted(native.positions, [stretch], 1), [stretch], -1)
    core = carbons[121:136]
    np.testing.assert_allclose(back[core], native.positions[core], atol=1e-9)


def test_a_stretch_out_of_register_is_doubtful(native: Model, search: RegisterSearch) -> None:
    simulated = DensityMap.simulate(native.topology, native.positions, RESOLUTION, 1.0, noise=0.1, seed=1)
    correlation = MapCorrelation(simulated, native.topology, RESOLUTION)
    molecule = Molecule(native.topology)

    def candidates(positions: np.ndarray) -> list[list[Stretch]]:
        return search.candidates(falls(molecule, positions, correlation.residue_correlations(positions)))

    assert candidates(native.positions) == []
    (chain,) = search.chains
    wrong = search.shifted(native.positions, [Stretch(chain, 60, 70), Stretch(chain, 150, 165)], 1)
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
