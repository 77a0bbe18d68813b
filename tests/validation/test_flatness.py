"""Conjugated systems of ligands, on the haems of haemoglobin and on bent ones."""

from __future__ import annotations

import numpy as np
import pytest

from openmm_density.models import read_model
from openmm_density.models.chemistry.planes import find_planes
from openmm_density.validation.flatness import flat_ligands

# Four nitrogens and twenty carbons of the porphyrin, and an atom on each of its eight outer corners.
HAEM_ATOMS = 24 + 8


@pytest.fixture(scope="module")
def haemoglobin(small_data):
    model = read_model(small_data / "emd3488_5ni1" / "5ni1_updated.cif")
    return model, find_planes(model.topology, model.positions)


def core(model, planes, residue):
    """Return the atoms of a haem's porphyrin, and their positions along and across its plane."""
    atoms = list(model.topology.atoms())
    members = sorted(
        {i for plane in planes.planes if plane.residue == residue for i in plane.atoms}
        - {i for i, atom in enumerate(atoms) if atom.name[:2] in ("CB", "CG", "O1", "O2")}
    )
    centred = model.positions[members] - model.positions[members].mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2]
    return members, centred @ axes.T, axes


def test_the_haems_of_a_deposited_model_are_flat(haemoglobin):
    model, planes = haemoglobin
    found = flat_ligands(model.topology, planes, model.positions)
    haems = [ligand for ligand in found if ligand.n_atoms == HAEM_ATOMS]
    assert [haem.residue for haem in haems] == [f"{chain} HEM 201" for chain in "ABCD"]
    assert all(0.02 < haem.rms < 0.15 and haem.rms < haem.worst < 0.3 for haem in haems)
    # Two propionates each, and nothing else.
    assert sorted(ligand.n_atoms for ligand in found) == [4] * 8 + [HAEM_ATOMS] * 4
    members, places, _ = core(model, planes, "A HEM 201")
    assert len(members) == HAEM_ATOMS
    assert haems[0].rms == pytest.approx(np.sqrt(np.mean(places[:, 2] ** 2)), rel=1e-9)


def test_a_bent_haem_is_seen_although_its_small_planes_are_nearly_flat(haemoglobin):
    model, planes = haemoglobin
    members, places, axes = core(model, planes, "B HEM 201")
    # Bent about an axis in its plane, with a radius of 8 Å.
    flat = places * (1, 1, 0)
    bent = flat + np.stack([0 * flat[:, 0], 0 * flat[:, 0], flat[:, 0] ** 2 / 16], axis=1)
    positions = model.positions.copy()
    centre = model.positions[members].mean(axis=0)
    shapes = {}
    for name, shape in (("flat", flat), ("bent", bent)):
        positions[members] = centre + shape @ axes
        found = flat_ligands(model.topology, planes, positions)
        shapes[name] = next(each for each in found if each.residue == "B HEM 201")
    assert shapes["flat"].rms < 1e-6
    heights = bent - bent.mean(axis=0)
    expected = np.linalg.svd(heights, compute_uv=False)[-1] / np.sqrt(len(members))
    assert shapes["bent"].rms == pytest.approx(expected, rel=1e-9) and shapes["bent"].rms > 0.3
    small = [
        rms
        for plane, rms in zip(planes.planes, planes.deviations(positions).rms)
        if plane.residue == "B HEM 201"
    ]
    assert max(small) < 0.4 * shapes["bent"].rms


def test_rings_that_a_single_bond_joins_are_two_systems(haemoglobin):
    model, planes = haemoglobin
    some = [plane for plane in planes.planes if plane.residue == "A HEM 201"]
    # Two pyrroles across the haem share no atom, and neighbours less than three.
    pyrroles = [plane for plane in some if len(plane.atoms) == 9]
    apart = flat_ligands(model.topology, type(planes)(tuple(pyrroles)), model.positions)
    assert [each.n_atoms for each in apart] == [9, 9, 9, 9]
