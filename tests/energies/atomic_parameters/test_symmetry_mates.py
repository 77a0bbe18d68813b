"""B factors and occupancies of a unit in the density of all its copies."""

import gemmi
import numpy as np
import pytest

from openmm_density import DensityMap, InputError, SymmetryOperators
from openmm_density.energies.atomic_parameters import BFactorRefinement, OccupancyRefinement
from openmm_density.energies.atomic_parameters.masked_map import MaskedMap
from openmm_density.energies.atomic_parameters.scatterers import Mates, Scatterers
from openmm_density.models.structures import read_model

RESOLUTION = 2.0


@pytest.fixture(scope="module")
def crystal(small_data, tmp_path_factory):
    """Return a peptide packed so tightly in P 21 21 21 that each atom is beside a mate, its map with known B's, and operators."""
    structure = gemmi.read_structure(str(small_data / "xray_1g8a_P21" / "1G8A_refined.pdb"))
    structure.setup_entities()
    structure.remove_ligands_and_waters()
    structure.remove_hydrogens()
    structure.remove_alternative_conformations()
    del structure[0][0][10:]
    every = [cra.atom for cra in structure[0].all()]
    places = np.array([atom.pos.tolist() for atom in every])
    sides = np.ptp(places, axis=0) + 3.0
    rng = np.random.default_rng(3)
    along = 12 * np.sin(np.arange(len(every)) / 6) + rng.uniform(-3, 3, len(every))
    for number, atom in enumerate(every):
        atom.pos = gemmi.Position(*(places[number] + sides / 4 - places.mean(axis=0)))
        atom.b_iso = 22 + along[number]
        atom.occ = 0.5 if number >= len(every) - 5 else 1.0
    structure.cell, structure.spacegroup_hm = (
        gemmi.UnitCell(*np.round(sides * 1.25, 2), 90, 90, 90),
        "P 21 21 21",
    )
    structure.setup_cell_images()
    path = tmp_path_factory.mktemp("mates") / "truth.pdb"
    structure.write_pdb(str(path))
    operators = SymmetryOperators.crystal(structure.cell, structure.spacegroup_hm)
    return read_model(path), _map(structure), operators


def _map(structure: gemmi.Structure) -> DensityMap:
    """Return the map of a whole cell up to the resolution, by gemmi."""
    calculator = gemmi.DensityCalculatorX()
    calculator.d_min, calculator.rate, calculator.cutoff = RESOLUTION, 2.0, 1e-6
    calculator.set_refmac_compatible_blur(structure[0])
    calculator.set_grid_cell_and_spacegroup(structure)
    calculator.put_model_density_on_grid(structure[0])
    factors = gemmi.transform_map_to_f_phi(calculator.grid)
    asu = factors.prepare_asu_data(dmin=RESOLUTION, unblur=calculator.blur)
    grid = asu.transform_f_phi_to_map(sample_rate=3.0)
    matrix = np.array(grid.unit_cell.orth.mat.tolist()) / (grid.nu, grid.nv, grid.nw)
    return DensityMap(np.ascontiguousarray(grid.array.T), matrix, np.zeros(3), periodic=True)


def _refined(crystal, operators):
    model, density_map, _ = crystal
    options = {"scattering": "xray", "solvent": False}
    return (
        BFactorRefinement(model, density_map, RESOLUTION, level="atom", **options)
        .with_copies(operators)
        .refine()
    )


def test_known_b_factors_are_found_beside_mates(crystal):
    model, _, operators = crystal
    seen, unseen = _refined(crystal, operators), _refined(crystal, None)
    truth = model.b_factors
    assert np.corrcoef(seen.b_factors, truth)[0, 1] > 0.97
    assert seen.b_factors.mean() == pytest.approx(truth.mean(), rel=0.05)
    # What mates have of the density is not the model's.
    assert seen.cc > 0.99 > unseen.cc + 0.03
    assert np.abs(seen.b_factors - truth).mean() < 0.5 * np.abs(unseen.b_factors - truth).mean()


def test_known_occupancies_are_found_beside_mates(crystal):
    model, density_map, operators = crystal
    groups = {"end": np.arange(len(model.positions) - 5, len(model.positions))}
    options = {"scattering": "xray", "solvent": False, "occupancies": np.ones(len(model.positions))}
    found = (
        OccupancyRefinement(model, density_map, RESOLUTION, groups, **options).with_copies(operators).refine()
    )
    # Its residue has one B factor, of which its atoms are above: with 24 seeds 0.446 to 0.476.
    assert found.values["end"] == pytest.approx(0.5, abs=0.08)


def test_density_and_derivatives_are_those_of_the_copies_written_out(crystal):
    model, density_map, operators = crystal
    rng, n = np.random.default_rng(1), len(model.positions)
    masked = MaskedMap(density_map, model.positions, RESOLUTION)
    mates = Mates.of(operators, model.positions, masked.margin, model.occupancies)
    assert len(mates.sources) > n
    elements = [atom.element.symbol for atom in model.topology.atoms()]
    of_unit = Scatterers(elements, model.positions, masked, 100.0, "xray", mates)
    every = np.concatenate([model.positions, mates.places])
    written_out = Scatterers(elements + [elements[k] for k in mates.sources], every, masked, 100.0, "xray")
    b, q = rng.uniform(5, 60, n), rng.uniform(0.2, 1, n)
    of_all = [np.concatenate([values, values[mates.sources]]) for values in (b, q)]
    density = of_unit.density(b, q)
    assert np.abs(density - written_out.density(*of_all)).max() < 1e-5 * density.max()
    field = rng.normal(size=masked.shape).astype(np.float32)
    for own, each in zip(of_unit.gradients(field, b, q), written_out.gradients(field, *of_all)):
        summed = each[:n] + np.bincount(mates.sources, each[n:], minlength=n)
        assert np.abs(own - summed).max() < 1e-5 * np.abs(summed).max()
    displaced = of_unit.displaced(q)
    assert np.abs(displaced - written_out.displaced(of_all[1])).max() < 1e-5 * displaced.max()


def test_displaced_solvent_is_as_wide_whatever_the_largest_b_factor(crystal):
    _, density_map, _ = crystal
    place = np.array([[5.0, 5.0, 5.0]])
    masked = MaskedMap(density_map, place, RESOLUTION)
    narrow, wide = (
        Scatterers(["C"], place, masked, largest_b).displaced(np.ones(1)) for largest_b in (20.0, 200.0)
    )
    assert np.abs(narrow - wide).max() < 5e-3 * wide.max()


def test_atoms_on_an_axis_are_one_with_their_copies(crystal):
    """The mates of an atom on a twofold axis make it whole, and no more."""
    _, density_map, _ = crystal
    place = np.array([[5.0, 5.0, 5.0]])
    turned = np.array([np.eye(3), np.diag([-1.0, -1.0, 1.0])])
    operators = SymmetryOperators.from_matrices(turned, np.array([[0, 0, 0], [10.0, 10.0, 0]]))
    masked = MaskedMap(density_map, place, RESOLUTION)
    alone = Scatterers(["O"], place, masked, 50.0)
    shared = Scatterers(["O"], place, masked, 50.0, mates=Mates.of(operators, place, 5.0, np.ones(1)))
    b, q = np.array([20.0]), np.ones(1)
    np.testing.assert_allclose(shared.density(b, q), alone.density(b, q), atol=1e-6)
    np.testing.assert_allclose(shared.displaced(q), alone.displaced(q), atol=1e-6)


def test_the_map_of_another_cell_is_refused(crystal):
    model, density_map, _ = crystal
    with pytest.raises(InputError, match="cell"):
        other = SymmetryOperators.crystal((30, 30, 30, 90, 90, 90), "P 1")
        BFactorRefinement(model, density_map, RESOLUTION).with_copies(other)
