"""Symmetry that was put into models and maps is found again where it was put."""

import gemmi
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.extensions.symmetry import find_in_chains, find_in_map, map_agreement, point_group
from openmm_density.extensions.symmetry.groups import about
from openmm_density.models import read_model

from ...conftest import PROJECT

CENTRE = np.array([12.0, -31.0, 44.0])
OFFSET = np.array([30.0, 12.0, 20.0])
NAMES = "ABCDEFGHIJKLMNOPQRSTUVWX"


def operators(group, tilt=None):
    frame = np.eye(3) if tilt is None else Rotation.from_euler("xyz", tilt, degrees=True).as_matrix()
    rotations = point_group(group)
    return about(rotations, np.zeros((len(rotations), 3)), frame, CENTRE)


@pytest.fixture(scope="module")
def unit():
    """Forty residues of adenylate kinase, off the axes."""
    chain = gemmi.read_structure(str(PROJECT / "examples" / "data" / "adk_closed.pdb"))[0][0]
    short = gemmi.Chain("A")
    for residue in list(chain)[:40]:
        short.add_residue(residue)
    model = gemmi.Model("1")
    model.add_chain(short)
    middle = np.array(model.calculate_center_of_mass().tolist())
    for residue in model[0]:
        for atom in residue:
            atom.pos = gemmi.Position(*(np.array(atom.pos.tolist()) - middle + CENTRE + OFFSET))
    return model[0]


def assembly(path, unit, rotations, translations, noise=0.0, order=None):
    random = np.random.default_rng(1)
    structure, model = gemmi.Structure(), gemmi.Model("1")
    for k in range(len(rotations)) if order is None else order:
        chain = unit.clone()
        chain.name = NAMES[k]
        for residue in chain:
            for atom in residue:
                moved = (
                    rotations[k] @ np.array(atom.pos.tolist()) + translations[k] + random.normal(0, noise, 3)
                )
                atom.pos = gemmi.Position(*moved)
        model.add_chain(chain)
    structure.add_model(model)
    structure.setup_entities()
    structure.make_mmcif_document().write_file(str(path))
    return read_model(path)


def farthest(found, rotations, translations):
    """Return degrees and Å by which found operators are off those that were put in, as sets."""
    angles, shifts = [], []
    for rotation, translation in zip(rotations, translations):
        turns = Rotation.from_matrix(found.rotations @ rotation.T).magnitude()
        nearest = turns.argmin()
        angles.append(np.rad2deg(turns[nearest]))
        point = CENTRE + OFFSET
        shifts.append(
            np.linalg.norm(
                (found.rotations[nearest] - rotation) @ point + found.translations[nearest] - translation
            )
        )
    return max(angles), max(shifts)


@pytest.mark.parametrize("group", ["C2", "C4", "C7", "D2", "D3", "T", "O"])
def test_the_group_of_chains_with_errors_is_found(tmp_path, unit, group):
    truth = operators(group, (20.0, 40.0, 70.0))
    order = np.random.default_rng(2).permutation(len(truth[0]))
    found = find_in_chains(assembly(tmp_path / "model.cif", unit, *truth, noise=0.05, order=order))
    assert found.group == group
    assert sorted(name for (name,) in found.units) == sorted(NAMES[: len(order)])
    degrees, away = farthest(found, *truth)
    assert degrees < 0.2
    assert away < 0.2
    assert 0.04 < found.rmsd < 0.2
    # A group's operators are exact: one after another is one of them.
    products = np.einsum("aij,bjk->abik", found.rotations, found.rotations).reshape(-1, 1, 3, 3)
    assert np.abs(products - found.rotations).max(axis=(2, 3)).min(axis=1).max() < 1e-9


def test_copies_in_no_group_are_refused(tmp_path, unit):
    rotations, translations = operators("C3")
    translations = translations + np.array([[0, 0, 0], [0, 0, 15.0], [0, 0, 0]])
    with pytest.raises(
        InputError, match=r"has 3 copies that are in no point group \(the nearest, C3, is off by"
    ):
        find_in_chains(assembly(tmp_path / "model.cif", unit, rotations, translations))


@pytest.mark.filterwarnings("error")
def test_copies_that_are_moved_and_not_turned_are_refused_without_warnings(tmp_path, unit):
    shifts = np.array([[0.0, 0, 0], [50, 0, 0], [0, 60, 0]])
    with pytest.raises(InputError, match="has 3 copies that are in no point group, found A B C"):
        find_in_chains(assembly(tmp_path / "model.cif", unit, np.array([np.eye(3)] * 3), shifts))


def test_a_model_of_one_chain_has_no_symmetry_to_find(tmp_path, unit):
    with pytest.raises(InputError, match="has no two chains of one sequence"):
        find_in_chains(assembly(tmp_path / "model.cif", unit, np.eye(3)[None], np.zeros((1, 3))))


def test_a_maps_axes_are_found(tmp_path, unit):
    truth = operators("D3", (1.0, 88.0, 11.0))
    model = assembly(tmp_path / "model.cif", unit, *truth)
    density_map = DensityMap.simulate(model.topology, model.positions, 6.0, 2.0)
    noise = np.random.default_rng(0).normal(0, 0.3 * density_map.data.std(), density_map.shape)
    noisy = DensityMap(density_map.data + noise, density_map.matrix, density_map.origin)
    found = find_in_map(noisy, "D3")
    degrees, away = farthest(found, *truth)
    assert degrees < 0.3
    assert away < 0.3
    assert found.mean > 0.8
    known = map_agreement(noisy, *truth, points=model.positions)
    assert known.correlations[0] == pytest.approx(1.0)
    assert known.mean > 0.8


def test_a_map_without_the_symmetry_is_refused(tmp_path, unit):
    truth = operators("C4")
    model = assembly(tmp_path / "model.cif", unit, *truth)
    density_map = DensityMap.simulate(model.topology, model.positions, 6.0, 2.0)
    with pytest.raises(InputError, match=r"the map does not have the symmetry C3: .* by only 0\.\d\d"):
        find_in_map(density_map, "C3")
