"""The search for the places along a chain where side chains fit."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from openmm import app

from openmm_density import DensityMap
from openmm_density.fitting.rebuilding.register_search import RegisterSearch, Stretch
from openmm_density.fitting.rebuilding.rotamer_search import RotamerSearch
from openmm_density.fitting.rebuilding.sequence_match import SequenceMatch, lowest_path
from openmm_density.models import Model, read_model
from openmm_density.models.structures import is_hydrogen

RESOLUTION = 2.8
STRENGTH_PER_ATOM = 150.0


def match_of(topology: app.Topology, density_map: DensityMap) -> tuple[SequenceMatch, RegisterSearch]:
    heavy = [atom.index for atom in topology.atoms() if not is_hydrogen(atom)]
    registers = RegisterSearch(topology)
    rotamers = RotamerSearch(topology, density_map, 0.225 * RESOLUTION, STRENGTH_PER_ATOM * len(heavy), heavy)
    return SequenceMatch(rotamers, registers), registers


@pytest.fixture(scope="module")
def native(data_dir: Path) -> Model:
    return read_model(data_dir / "emd6374_frag/6374_native.pdb")


@pytest.fixture(scope="module")
def match(native: Model) -> tuple[SequenceMatch, RegisterSearch]:
    simulated = DensityMap.simulate(native.topology, native.positions, RESOLUTION, 0.9, noise=0.1, seed=1)
    return match_of(native.topology, simulated)


def test_a_model_in_register_has_no_stretch_that_fits_elsewhere(
    native: Model, match: tuple[SequenceMatch, RegisterSearch]
) -> None:
    assert match[0].stretches(native.positions) == []


def test_stretches_are_found_from_end_to_end_with_the_way_back(
    native: Model, match: tuple[SequenceMatch, RegisterSearch]
) -> None:
    search, registers = match
    (chain,) = registers.chains
    wrong = registers.shifted(native.positions, [Stretch(chain, 60, 75)], 1)
    wrong = registers.shifted(wrong, [Stretch(chain, 150, 165)], -1)
    found = search.stretches(wrong)
    assert len(found) == 2
    for (middle, *around), (first, last, back) in zip(found, ((60, 75, -1), (150, 165, 1))):
        assert abs(middle.first - first) <= 3 and abs(middle.last - last) <= 3
        assert middle.ways == (back,) and len(around) == 4
        for other in around:
            assert abs(other.first - middle.first) + abs(other.last - middle.last) == 1
            assert other.ways == middle.ways


def test_energies_are_those_of_side_chains_in_places_along_the_chain(
    native: Model, match: tuple[SequenceMatch, RegisterSearch]
) -> None:
    search, registers = match
    (chain,) = registers.chains
    energies = search.energies(native.positions, chain)
    residues = list(native.topology.residues())
    glycines = np.array([residues[i].name == "GLY" for i in chain])
    assert glycines.any() and (energies[glycines] == 0).all()
    # Beyond the ends there is no place.
    assert energies[0, 0] == energies[0, 1] and energies[-1, 2] == energies[-1, 1]
    # In a map of the model nearly all fit best where they are; what is smaller than its neighbours may fit there too.
    own = energies[~glycines, 1]
    assert (own < 0).mean() > 0.95
    big = np.array([residues[i].name in ("PHE", "TRP", "TYR", "HIS", "ARG", "LEU") for i in chain])
    assert (energies[big].argmin(axis=1) == 1).mean() > 0.8
    # Shifted as a whole, the table shifts with it.
    shifted = registers.shifted(native.positions, [Stretch(chain, 100, 130)], 1)
    again = search.energies(shifted, chain)
    alike = [p for p in range(105, 126) if len(search._rotamers.side_chain_atoms(chain[p]))]
    assert np.corrcoef(again[alike, 0], energies[alike, 1])[0, 1] > 0.9


def test_the_lowest_path_is_that_of_all_paths() -> None:
    rng = np.random.default_rng(3)
    for change in (0.0, 0.3, 2.0):
        energies = rng.normal(size=(7, 3))
        cost = {
            path: energies[np.arange(7), path].sum() + change * np.abs(np.diff(path)).sum()
            for path in itertools.product(range(3), repeat=7)
        }
        assert tuple(lowest_path(energies, change)) == min(cost, key=cost.__getitem__)
    assert len(lowest_path(np.zeros((0, 3)), 1.0)) == 0


def test_stretches_stay_within_their_chains(data_dir: Path) -> None:
    tetramer = read_model(data_dir / "emd3488_5ni1/5me2.pdb")
    density_map = DensityMap.from_file(data_dir / "emd3488_5ni1/emd_3488.mrc")
    search, _ = match_of(tetramer.topology, density_map)
    names = [residue.chain.index for residue in tetramer.topology.residues()]
    for stretch in itertools.chain.from_iterable(search.stretches(tetramer.positions)):
        assert 0 <= stretch.first <= stretch.last < len(stretch.chain)
        assert len({names[i] for i in stretch.region}) == 1
    water = app.Topology()
    assert match_of(water, density_map)[0].stretches(np.zeros((0, 3))) == []
