"""B factors refined in maps whose own are known, and in real ones."""

from dataclasses import replace

import numpy as np
import pytest
from openmm import Platform, app, unit

from openmm_density import DensityMap, InputError
from openmm_density.energies.atomic_parameters import BFactorRefinement
from openmm_density.energies.atomic_parameters.b_factors import HalfMapCheck, LevelScore, b_factor_rows
from openmm_density.maps.simulated_map import band_limited_noise


@pytest.mark.parametrize(
    ("resolution", "level", "least", "apart"),
    [(2.5, "atom", 0.98, 0.1), (3.5, "atom", 0.97, 0.3), (5.0, "residue", 0.9, 1.0)],
)
def test_known_b_factors_are_found(known, resolution, level, least, apart):
    """Five models and maps correlated by 0.998, 0.994 and 0.967 or more; the means were off by at most 3, 16 and 64%."""
    refined = BFactorRefinement(known.model, known.map(resolution, noise=0.1), resolution).refine()
    assert refined.level == level
    assert known.pearson(refined.b_factors) > least
    # How wide all atoms are and how much solvent they displace are told apart the less the coarser a map is.
    mean = refined.b_factors.mean()
    assert mean == pytest.approx(known.b_factors.mean(), rel=apart)
    assert refined.cc > refined.cc_uniform
    away = refined.b_factors - known.b_factors
    # Of groups, what differs within them is no part of it.
    if level == "atom":
        assert np.sqrt(np.mean((away / refined.deviations) ** 2)) < 2.5


def test_given_b_factors_are_compared(known):
    """Those of the truth agree better than uniform ones; a model whose are all alike has none."""
    density_map = known.map(5.0)
    right = replace(known.model, b_factors=known.b_factors)
    refined = BFactorRefinement(right, density_map, 5.0).refine()
    assert refined.cc_given == pytest.approx(1, abs=2e-3)
    assert refined.cc_given > refined.cc_uniform
    alike = replace(known.model, b_factors=np.zeros(len(known.b_factors)))
    assert BFactorRefinement(alike, density_map, 5.0).refine().cc_given is None


def test_bounds_are_kept_and_said(known):
    refined = BFactorRefinement(known.model, known.map(3.5), 3.5, bounds=(30, 60)).refine()
    assert refined.b_factors.min() >= 30 - 1e-6
    assert refined.b_factors.max() <= 60 + 1e-6
    assert any("the largest B factor that is allowed, 60 Å²" in note for note in refined.notes)


def test_groups_have_one_b_factor_each(known):
    halves = [np.flatnonzero(known.residues < 48), np.flatnonzero(known.residues >= 48)]
    b_factors = np.where(known.residues < 48, 20.0, 90.0)
    density_map = known.map(4.0, b_factors=b_factors)
    refined = BFactorRefinement(known.model, density_map, 4.0, groups=halves).refine()
    assert refined.level == "group"
    assert refined.n_refined == 2
    np.testing.assert_allclose(refined.b_factors, b_factors, rtol=0.15)


def test_hydrogens_have_the_b_factors_of_what_they_are_bound_to(known):
    model = app.Modeller(known.model.topology, known.model.positions * unit.angstrom)
    model.delete([residue for residue in model.topology.residues() if residue.index > 8])
    model.addHydrogens(platform=Platform.getPlatformByName("Reference"))
    topology, positions = model.topology, model.positions.value_in_unit(unit.angstrom)
    density_map = DensityMap.simulate(topology, positions, 4.0, 1.3)
    refined = BFactorRefinement(topology, density_map, 4.0, positions=positions, level="atom").refine()
    bonds = [(a, b) for a, b in topology.bonds() if a.element.symbol == "H" or b.element.symbol == "H"]
    assert bonds
    assert all(refined.b_factors[a.index] == refined.b_factors[b.index] for a, b in bonds)


def test_half_maps_choose_the_level(known):
    clean = known.map(3.0)
    near = clean.data[clean.mask_around(known.model.positions, 3.0)]
    # Six seeds of six choose atoms here; with a noise of 0.3 one of four chose residues.
    noise = [band_limited_noise(near, clean.shape, clean.matrix, 3.0, 0.2, seed) for seed in (1, 2)]
    halves = [replace(clean, data=clean.data + each) for each in noise]
    refined = BFactorRefinement(known.model, clean, 3.0, half_maps=halves).refine()
    assert refined.level == refined.half_maps.best == "atom"
    assert [each.level for each in refined.half_maps.levels] == ["atom", "residue", "group"]
    assert refined.half_maps.gain("atom") > 0.005
    assert "agree better with the other too" in refined.notes[0]


def test_a_level_that_fits_noise_is_not_taken():
    scores = [
        LevelScore("atom", 0.9, 0.7),
        LevelScore("residue", 0.85, 0.79),
        LevelScore("group", 0.81, 0.78),
    ]
    check = HalfMapCheck(LevelScore("uniform", 0.8, 0.78), scores)
    assert check.best == "residue"
    assert "CC from 0.7800 to 0.7000): they fit noise" in check.notes("atom")[0]
    assert "Those per atom were not taken" in check.notes("residue")[1]


def test_real_map_agrees_with_deposited_b_factors(small_data, emd6374):
    """EMD-6374 at 2.9 Å: what phenix.real_space_refine found, by residue."""

    density_map = DensityMap.from_file(small_data / "emd6374_frag" / "emd6374.mrc.gz")
    refined = BFactorRefinement(emd6374, density_map, 2.9).refine()
    rows = b_factor_rows(emd6374.topology, refined)
    deposited = b_factor_rows(emd6374.topology, replace(refined, b_factors=emd6374.b_factors))
    found, given = ([row["b_factor"] for row in each] for each in (rows, deposited))
    assert np.corrcoef(found, given)[0, 1] > 0.7
    assert refined.cc > refined.cc_uniform + 0.02
    assert rows[0].keys() == {"residue", "b_factor", "b_factor_deviation", "determined"}


def test_too_coarse_a_map_for_atoms_is_said(known):
    refined = BFactorRefinement(known.model, known.map(6.5), 6.5, level="atom").refine()
    assert "too coarse for a B factor of each atom" in refined.notes[0]
    assert BFactorRefinement(known.model, known.map(6.5), 6.5).refine().level == "group"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bounds": (0, 100)}, "bounds must be two positive B factors in Å²"),
        ({"bounds": 3}, "bounds must be two positive B factors in Å²"),
        ({"level": "chain"}, 'level must be auto, atom, residue or group, found "chain"'),
        ({"level": "atom", "groups": [[0]]}, 'groups is for level="group"'),
        ({"groups": [[0, 1], [1]]}, "groups must not share atoms, found atom 1 in two"),
        ({"groups": [[9999]]}, "groups must be from 0 to"),
        ({"occupancies": np.ones(3)}, "occupancies must be one for each of the"),
    ],
)
def test_what_cannot_be_used_is_refused(known, options, said):
    density_map = known.map(5.0)
    with pytest.raises(InputError) as raised:
        BFactorRefinement(known.model, density_map, 5.0, **options).refine()
    assert said in str(raised.value)


def test_occupancies_over_1_are_refused_by_name(known):
    occupancies = np.ones(len(known.b_factors))
    occupancies[1] = 1.4
    with pytest.raises(InputError, match=r"occupancies must be from 0 to 1, found 1\.4 of A MET 1 CA"):
        BFactorRefinement(known.model, known.map(5.0), 5.0, occupancies=occupancies)


def test_a_topology_needs_positions(known):
    with pytest.raises(InputError, match="positions are needed with a topology"):
        BFactorRefinement(known.model.topology, known.map(5.0), 5.0)
