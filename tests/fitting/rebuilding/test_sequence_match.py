"""The search for the places along a chain where side chains fit."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from openmm import app
from scipy.spatial import cKDTree

from openmm_density import DensityMap
from openmm_density.fitting.rebuilding.density_model import DensityModel
from openmm_density.fitting.rebuilding.molecule import Molecule
from openmm_density.fitting.rebuilding.register_search import RegisterSearch, Stretch
from openmm_density.fitting.rebuilding.rotamer_search import RotamerSearch
from openmm_density.fitting.rebuilding.sequence_match import SHIFTS, SequenceMatch, lowest_path
from openmm_density.models import Model, read_model
from openmm_density.models.chemistry.elements import is_hydrogen

from .searched import Going

RESOLUTION = 2.8
STRENGTH_PER_ATOM = 150.0


def match_of(
    topology: app.Topology, density_map: DensityMap, strength: float = STRENGTH_PER_ATOM
) -> tuple[SequenceMatch, RegisterSearch]:
    molecule, registers = Molecule(topology), RegisterSearch(topology)
    numbers = [0.0 if is_hydrogen(atom) else atom.element.atomic_number for atom in topology.atoms()]
    weights = np.array(numbers)
    k = strength * np.count_nonzero(weights)
    density = DensityModel(density_map, weights, 0.225 * RESOLUTION, k)
    return SequenceMatch(topology, density, RotamerSearch(molecule, density), registers), registers


@pytest.fixture(scope="module")
def native(small_data: Path) -> Model:
    return read_model(small_data / "emd6374_frag/6374_native.pdb")


@pytest.fixture(scope="module")
def match(native: Model) -> tuple[SequenceMatch, RegisterSearch]:
    simulated = DensityMap.simulate(native.topology, native.positions, RESOLUTION, 0.9, noise=0.1, seed=1)
    return match_of(native.topology, simulated)


def test_a_model_in_register_has_no_stretch_that_fits_elsewhere(
    native: Model, match: tuple[SequenceMatch, RegisterSearch]
) -> None:
    assert match[0].stretches(native.positions, Going()) == []


def test_stretches_are_found_from_end_to_end_with_the_way_back(
    native: Model, match: tuple[SequenceMatch, RegisterSearch]
) -> None:
    search, registers = match
    (chain,) = registers.chains
    wrong = registers.shifted(native.positions, [Stretch(chain, 60, 75)], 1)
    wrong = registers.shifted(wrong, [Stretch(chain, 150, 165)], -1)
    found = search.stretches(wrong, Going())
    assert len(found) == 2
    for (middle, *around), (first, last, back) in zip(found, ((60, 75, -1), (150, 165, 1))):
        assert abs(middle.first - first) <= 3 and abs(middle.last - last) <= 3
        assert middle.shifts == (back,) and len(around) == 4
        for other in around:
            assert abs(other.first - middle.first) + abs(other.last - middle.last) == 1
            assert other.shifts == middle.shifts


def test_energies_are_those_of_side_chains_in_places_along_the_chain(
    native: Model, match: tuple[SequenceMatch, RegisterSearch]
) -> None:
    search, registers = match
    (chain,) = registers.chains
    energies = search.energies(native.positions, chain)
    residues = list(native.topology.residues())
    glycines = np.array([residues[i].name == "GLY" for i in chain])
    assert glycines.any() and (energies[glycines] == 0).all()
    stays, back, on = (int(np.flatnonzero(by == SHIFTS)[0]) for by in (0, -1, 1))
    # Beyond the ends there is no place.
    assert energies[0, back] == energies[0, stays] and energies[-1, on] == energies[-1, stays]
    # In a map of the model nearly all fit best where they are; what is smaller than its neighbours may fit there too.
    own = energies[~glycines, stays]
    assert (own < 0).mean() > 0.95
    big = np.array([residues[i].name in ("PHE", "TRP", "TYR", "HIS", "ARG", "LEU") for i in chain])
    assert (energies[big].argmin(axis=1) == stays).mean() > 0.8
    # Shifted as a whole, the table shifts with it.
    shifted = registers.shifted(native.positions, [Stretch(chain, 100, 130)], 1)
    again = search.energies(shifted, chain)
    alike = [p for p in range(105, 126) if len(search._rotamers.side_chain(chain[p]).atoms)]
    assert np.corrcoef(again[alike, back], energies[alike, stays])[0, 1] > 0.9


def test_the_lowest_path_is_that_of_all_paths() -> None:
    rng = np.random.default_rng(3)
    shifts = np.array([0, -1, 1])
    for change in (0.0, 0.3, 2.0):
        energies = rng.normal(size=(7, 3))
        cost = {}
        for path in itertools.product(range(3), repeat=7):
            whole = np.array([0, *shifts[list(path)], 0])
            changes = np.abs(np.diff(whole)) * [0.5, *np.ones(6), 0.5]
            cost[path] = energies[np.arange(7), path].sum() + change * changes.sum()
        assert tuple(lowest_path(energies, shifts, change)) == min(cost, key=cost.__getitem__)
    assert len(lowest_path(np.zeros((0, 3)), shifts, 1.0)) == 0
    # Where nothing is told, nothing is shifted, nor all of a chain for little.
    assert not lowest_path(np.zeros((10, 3)), shifts, 1.0).any()
    little = np.zeros((10, 3))
    little[:, 1] = -0.05
    assert not lowest_path(little, shifts, 1.0).any()
    assert (lowest_path(4 * little, shifts, 1.0) == 1).all()


def test_stretches_at_the_ends_of_a_chain_are_found(
    native: Model, match: tuple[SequenceMatch, RegisterSearch]
) -> None:
    search, registers = match
    (chain,) = registers.chains
    end = len(chain) - 1
    for by, first, last in ((1, 0, 14), (-1, end - 14, end)):
        wrong = registers.shifted(native.positions, [Stretch(chain, first, last)], by)
        (found,) = search.stretches(wrong, Going())
        assert abs(found[0].first - first) <= 4 and abs(found[0].last - last) <= 4
        assert all(0 <= each.first <= each.last <= end and each.shifts == (-by,) for each in found)


def test_contacts_alone_make_no_stretches_of_a_model_in_register(data_dir: Path) -> None:
    # The whole molecule: where neighbours are missing, contacts do not say where a residue belongs.
    native = read_model(data_dir / "emd6374_frag/6374_native.pdb")
    simulated = DensityMap.simulate(native.topology, native.positions, RESOLUTION, 0.9, noise=0.5, seed=1)
    search, _ = match_of(native.topology, simulated, 2.0)
    assert search.stretches(native.positions, Going()) == []


def test_a_weak_density_shows_the_same_stretches(native: Model) -> None:
    simulated = DensityMap.simulate(native.topology, native.positions, RESOLUTION, 0.9, noise=0.1, seed=1)
    found = []
    for strength in (175.0, 8.0):
        search, registers = match_of(native.topology, simulated, strength)
        (chain,) = registers.chains
        wrong = registers.shifted(native.positions, [Stretch(chain, 60, 75)], 1)
        found.append(
            [(each.first, each.last, each.shifts) for (each, *_) in search.stretches(wrong, Going())]
        )
    strong, weak = found
    assert len(strong) == len(weak) == 1
    assert np.abs(np.subtract(strong[0][:2], weak[0][:2])).max() <= 2 and strong[0][2] == weak[0][2] == (-1,)


def test_side_chains_meet_what_they_reach_of_the_backbone_and_no_more(
    native: Model, match: tuple[SequenceMatch, RegisterSearch], monkeypatch: pytest.MonkeyPatch
) -> None:
    search, registers = match
    rotamers = search._rotamers
    tried = []

    def note(residue: int, places: np.ndarray, around: np.ndarray, met: np.ndarray, *_: object) -> float:
        side_chain = rotamers.side_chain(residue)
        if side_chain.torsions:
            tried.append((side_chain.conformations(places), met))
        return 0.0

    monkeypatch.setattr(rotamers, "lowest_energy", note)
    search.energies(native.positions, registers.chains[0][100:120])
    backbone = native.positions[search._backbone]
    farthest = 0.0
    for places, met in tried:
        touched = backbone[cKDTree(places.reshape(-1, 3)).query(backbone)[0] < 4.0]
        assert set(map(tuple, touched.tolist())) <= set(map(tuple, met.tolist()))
        farthest = max(farthest, np.linalg.norm(met - places[0][1], axis=1).max())
    # The end of an arginine is 7 Å from its Cα, and what touches it or its density is 5 Å from there.
    assert len(tried) > 20 and farthest < 14.0


def test_only_chains_that_changed_are_searched_and_a_stop_ends_it(
    native: Model, match: tuple[SequenceMatch, RegisterSearch]
) -> None:
    class Stopped:
        requested = True

    search, registers = match
    wrong = registers.shifted(native.positions, [Stretch(registers.chains[0], 60, 75)], 1)
    assert len(search.stretches(wrong, Going(), np.array([100]))) == 1
    assert search.stretches(wrong, Going(), np.zeros(0, dtype=np.int64)) == []
    assert search.stretches(wrong, Stopped()) == []


def test_a_side_chain_must_not_overlap_what_it_meets(
    native: Model, match: tuple[SequenceMatch, RegisterSearch]
) -> None:
    rotamers, density = match[0]._rotamers, match[0]._density
    leucine = next(r for r in native.topology.residues() if r.name == "LEU" and r.index > 20)
    index = {atom.name: atom.index for atom in leucine.atoms()}
    places = native.positions[rotamers.side_chain(leucine.index).atoms]
    slopes = density.slopes(native.positions)

    def energy(at: np.ndarray, meets: bool) -> float:
        other = np.array([0])
        return rotamers.lowest_energy(leucine.index, places, other, at[None], np.array([meets]), slopes)

    on_beta = native.positions[index["CB"]]
    # Its Cβ is there in any rotamer.
    assert energy(on_beta, True) > energy(on_beta, False) + 500.0
    far = on_beta + 50.0
    assert energy(far, True) == pytest.approx(energy(far, False), abs=1e-3)
    # The density of what lies there is not to be had twice.
    assert energy(on_beta, False) > energy(far, False)


def test_stretches_stay_within_their_chains(small_data: Path) -> None:
    tetramer = read_model(small_data / "emd3488_5ni1/5me2.pdb")
    density_map = DensityMap.from_file(small_data / "emd3488_5ni1/emd_3488.mrc")
    search, _ = match_of(tetramer.topology, density_map)
    names = [residue.chain.index for residue in tetramer.topology.residues()]
    for stretch in itertools.chain.from_iterable(search.stretches(tetramer.positions, Going())):
        assert 0 <= stretch.first <= stretch.last < len(stretch.chain)
        assert len({names[i] for i in stretch.region}) == 1
    empty = app.Topology()
    assert match_of(empty, density_map)[0].stretches(np.zeros((0, 3)), Going()) == []
