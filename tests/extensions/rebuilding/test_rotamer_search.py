"""The search for better rotamers: what it takes for the density, what it finds, and what it lets alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from openmm import app

from openmm_density import DensityFit, DensityMap
from openmm_density.extensions.rebuilding.density_model import DensityModel
from openmm_density.extensions.rebuilding.molecule import Molecule
from openmm_density.extensions.rebuilding.rotamer_search import RotamerSearch
from openmm_density.models import Model, read_model
from openmm_density.models.chemistry.elements import is_hydrogen

from ...fragments import fragment
from ...small_models import turned_about

RESOLUTION = 3.0

STRENGTH = 60.0


@pytest.fixture(scope="module")
def density(emd5925: Model) -> DensityFit:
    simulated = DensityMap.simulate(emd5925.topology, emd5925.positions, RESOLUTION, 1.0, noise=0.1, seed=1)
    return DensityFit(simulated, emd5925.topology, RESOLUTION, weights="number", positions=emd5925.positions)


@pytest.fixture(scope="module")
def search(emd5925: Model, density: DensityFit) -> RotamerSearch:
    return search_in(emd5925, density)


def search_in(model: Model, density: DensityFit) -> RotamerSearch:
    molecule = Molecule(model.topology)
    return RotamerSearch(molecule, DensityModel.of_fit(density, molecule, STRENGTH * density.n_fitted_atoms))


def misplaced(model: Model, numbers: list[int]) -> tuple[np.ndarray, dict[int, list[int]]]:
    """Turn χ1 of some residues to another staggered place; give the atoms behind Cβ of each."""
    positions, turned = model.positions.copy(), {}
    for residue in model.topology.residues():
        if int(residue.id) in numbers:
            index = {atom.name: atom.index for atom in residue.atoms()}
            atoms = [i for name, i in index.items() if name not in ("N", "CA", "C", "O", "CB", "OXT")]
            positions = turned_about(positions, index["CA"], index["CB"], np.array(atoms), 2 * np.pi / 3)
            turned[residue.index] = atoms
    return positions, turned


def test_turned_side_chains_are_turned_back(
    emd5925: Model, density: DensityFit, search: RotamerSearch
) -> None:
    # Tyrosines, a tryptophan, phenylalanines, a valine and a glutamate.
    positions, wrong = misplaced(emd5925, [9, 11, 26, 56, 59, 72, 91])
    improved, turned = search.improved(positions)
    assert set(wrong) <= set(turned)
    for atoms in wrong.values():
        # Rings and carboxylates may come back with their two sides exchanged.
        before, after = (
            np.linalg.norm(x[atoms][:, None] - emd5925.positions[atoms], axis=-1).min(axis=1)
            for x in (positions, improved)
        )
        assert after.max() < 0.8 < before.max()
    assert density.similarity(improved) > density.similarity(positions) + 0.01
    again, none = search.improved(improved)
    assert none == [] and np.array_equal(again, improved)


@pytest.fixture(scope="module")
def partly_seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, RotamerSearch, set[int]]:
    """A fragment in a noisy map without the ends of its long side chains, the search, and the residues of these."""
    model = fragment(tmp_path_factory.mktemp("fragment") / "model.pdb", residues=70)
    visible = app.Modeller(model.topology, model.positions / 10)
    long = {r.index for r in model.topology.residues() if r.name in ("LYS", "ARG", "GLU", "GLN", "MET")}
    kept = ("N", "CA", "C", "O", "CB")
    visible.delete([a for a in model.topology.atoms() if a.residue.index in long and a.name not in kept])
    simulated = DensityMap.simulate(visible.topology, visible.positions, 2.5, 0.9, noise=0.15, seed=1)
    density = DensityFit(simulated, model.topology, 2.5, positions=model.positions)
    return model, search_in(model, density), long


def test_side_chains_are_not_turned_by_noise(partly_seen: tuple[Model, RotamerSearch, set[int]]) -> None:
    model, search, unseen = partly_seen
    # What is just built goes where it is best; what was there stays until the map shows otherwise.
    assert len(set(search.improved(model.positions)[1]) & unseen) >= 5
    # In 20 maps with other noise one side chain was, once.
    assert len(search.improved(model.positions, only_seen=True)[1]) <= 2


def test_deposited_side_chains_stay(small_data: Path) -> None:
    check_deposited(small_data / "xray_1g8a_P21", "1G8A_refined.pdb", "composite_omit_map.mtz", 1.8)


def test_side_chains_of_whole_deposited_models_stay(data_dir: Path) -> None:
    check_deposited(data_dir / "xray_1g8a_P21", "1G8A_refined.pdb", "composite_omit_map.mtz", 1.23)
    check_deposited(data_dir / "xraymap_P41212_bigendian", "ref.pdb", "map.ccp4", 2.0)


def check_deposited(folder: Path, model: str, density_map: str, resolution: float) -> None:
    deposited = read_model(folder / model)
    seen = DensityMap.from_file(folder / density_map)
    # Atoms are wider in both maps than their resolutions say.
    density = DensityFit(seen, deposited.topology, 1.35 * resolution, positions=deposited.positions)
    search = search_in(deposited, density)
    _, turned = search.improved(deposited.positions, only_seen=True)
    assert len(turned) == 0


def test_only_torsions_of_side_chains_change(emd5925: Model, search: RotamerSearch) -> None:
    positions, wrong = misplaced(emd5925, [9, 56])
    near = np.array([residue + step for residue in wrong for step in range(-2, 3)])
    improved, turned = search.improved(positions, near)
    moved = np.flatnonzero((improved != positions).any(axis=1))
    atoms = list(emd5925.topology.atoms())
    assert {atoms[i].residue.index for i in moved} == set(turned)
    assert not {atoms[i].name for i in moved} & {"N", "CA", "C", "O", "CB"}
    for bond in emd5925.topology.bonds():
        i, j = (atom.index for atom in bond)
        length = np.linalg.norm(improved[i] - improved[j])
        assert length == pytest.approx(np.linalg.norm(positions[i] - positions[j]), abs=1e-6)


def test_what_is_not_fitted_stays(emd5925: Model, density: DensityFit) -> None:
    positions, wrong = misplaced(emd5925, [9, 56])
    first, second = wrong
    others = np.setdiff1d(density.atoms, wrong[first][:1])
    partial = DensityFit(
        density.target, emd5925.topology, RESOLUTION, atoms=others, weights="number", positions=positions
    )
    _, turned = search_in(emd5925, partial).improved(positions, np.array([first, second]))
    assert second in turned and first not in turned


def test_ligands_of_metals_stay(haemoglobin: Model) -> None:
    inverse = DensityMap.simulate(haemoglobin.topology, haemoglobin.positions, 4.0, 2.0)
    # In the negative of their density all side chains want to be somewhere else.
    away = DensityMap(inverse.data.max() - inverse.data, inverse.matrix, inverse.origin)
    numbers = [
        0.0 if is_hydrogen(atom) else atom.element.atomic_number for atom in haemoglobin.topology.atoms()
    ]
    search = RotamerSearch(Molecule(haemoglobin.topology), DensityModel(away, np.array(numbers), 0.9, 1e7))
    irons = [atom.index for atom in haemoglobin.topology.atoms() if atom.element.symbol.upper() == "FE"]
    assert irons
    bound, free = [], []
    for residue in haemoglobin.topology.residues():
        if residue.name == "HIS":
            places = haemoglobin.positions[[atom.index for atom in residue.atoms()]]
            nearest = np.linalg.norm(places[:, None] - haemoglobin.positions[irons], axis=-1).min()
            (bound if nearest < 2.5 else free).append(residue.index)
    _, turned = search.improved(haemoglobin.positions, np.array([*bound, *free[:6]]))
    assert bound and not set(bound) & set(turned)
    assert set(free) & set(turned)


def test_what_the_map_says_nothing_of_stays(emd5925: Model, density: DensityFit) -> None:
    positions, wrong = misplaced(emd5925, [9, 56])
    first, second = wrong
    weights = np.ones(emd5925.topology.getNumAtoms())
    weights[wrong[first]] = 0.0
    blind = DensityFit(
        density.target, emd5925.topology, RESOLUTION, weights=weights, positions=emd5925.positions
    )
    _, turned = search_in(emd5925, blind).improved(positions, np.array([first, second]))
    assert turned == [second]
