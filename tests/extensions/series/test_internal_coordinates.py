"""Distances, angles and dihedrals between centres, beside mdtraj's."""

import mdtraj
import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.extensions.series import InternalCoordinate
from openmm_density.models import read_model

from ...small_models import ADK_CLOSED, ADK_OPEN

ALPHA = [f"resid {number} and name CA" for number in (10, 60, 120, 200)]


@pytest.fixture(scope="module")
def path():
    models = [read_model(each) for each in (ADK_OPEN, ADK_CLOSED)]
    trajectory = mdtraj.load([str(ADK_OPEN), str(ADK_CLOSED)])
    return models[0].topology, np.array([model.positions for model in models]), trajectory


@pytest.mark.parametrize("kind, count", [("distance", 2), ("angle", 3), ("dihedral", 4)])
def test_those_of_single_atoms_are_mdtrajs(path, kind, count):
    topology, frames, trajectory = path
    atoms = [trajectory.topology.select(each)[0] for each in ALPHA[:count]]
    oracle = getattr(mdtraj, f"compute_{kind}s")(trajectory, [atoms], periodic=False)[:, 0].astype(float)
    oracle = oracle * 10 if kind == "distance" else np.degrees(oracle)
    found = InternalCoordinate(kind, ALPHA[:count]).values(topology, frames)
    turns = 0 if kind == "distance" else 360
    assert (found - oracle - turns * np.rint((found - oracle) / (turns or np.inf))) == pytest.approx(
        0, abs=2e-3
    )


def test_centres_are_those_of_heavy_atoms(path):
    topology, frames, trajectory = path
    selections = ("resid 30 to 59", "resid 120 to 150")
    heavy = [trajectory.topology.select(f"({each}) and element != H") for each in selections]
    centres = [10 * trajectory.xyz[:, atoms].astype(float).mean(axis=1) for atoms in heavy]
    oracle = np.linalg.norm(centres[1] - centres[0], axis=1)
    coordinate = InternalCoordinate("distance", selections)
    assert coordinate.values(topology, frames) == pytest.approx(oracle, abs=1e-3)
    assert coordinate.label == "distance resid 30 to 59 – resid 120 to 150" and coordinate.unit == "Å"


def test_a_dihedral_goes_on_beyond_half_a_turn():
    topology = read_model(ADK_OPEN).topology
    four = np.array([[1.0, 0, 0], [0, 0, 0], [0, 0, 1], [1, 0, 1]])
    angles = np.radians([170, 185, 200])
    atoms = [atom.index for atom in topology.atoms() if atom.name == "CA"][:4]
    frames = np.zeros((3, topology.getNumAtoms(), 3))
    frames[:, atoms[:3]] = four[:3]
    frames[:, atoms[3]] = np.column_stack([np.cos(angles), np.sin(angles), np.ones(3)])
    selections = [f"resid {number} and name CA" for number in range(4)]
    values = InternalCoordinate("dihedral", selections).values(topology, frames)
    assert np.diff(values) == pytest.approx([15, 15]) and abs(values[0]) == pytest.approx(170)


@pytest.mark.parametrize(
    "kind, selections, said",
    [
        ("length", ("all",), "kind must be distance, angle or dihedral"),
        ("angle", ("all", "all"), "angle must be 3 mdtraj selections, found 2 of them"),
        ("distance", ("all", "resid 900"), 'distance must select atoms of the model, found "resid 900"'),
        ("distance", ("all", "resid (( 3"), "distance must be mdtraj selections"),
    ],
)
def test_what_is_none_is_refused(path, kind, selections, said):
    with pytest.raises(InputError, match=said):
        InternalCoordinate(kind, selections).check(path[0])
