"""What a model makes of measured amplitudes: scale, solvent, R factors and maps."""

from dataclasses import replace

import numpy as np
import pytest

from openmm_density.extensions.crystals import crystal_structure, phased, phased_file, read_reflections
from openmm_density.extensions.crystals.r_factors import error_of_r_free
from openmm_density.extensions.crystals.structure_factors import calculated
from openmm_density.maps.density_map import DensityMap
from openmm_density.maps.mtz_maps import read_mtz

from . import simulated as truth
from .simulated import simulated, usual_columns, write_mtz


def test_scale_and_solvent_are_found(protein, tmp_path):
    hkl, amplitudes, _ = simulated(protein, 2.8)
    write_mtz(tmp_path / "a.mtz", protein, hkl, usual_columns(amplitudes, np.arange(len(hkl)) % 17 == 3))
    protein.write_pdb(str(tmp_path / "a.pdb"))
    found = phased_file(tmp_path / "a.pdb", read_reflections(tmp_path / "a.mtz"))
    # The solvent masks have other grids, and more than half of this cell is solvent.
    assert found.r_factors.r_work < 0.02 and found.r_factors.r_free < 0.02
    assert found.scaled.solvent_density == pytest.approx(truth.K_SOL, abs=0.01)
    assert found.scaled.solvent_b == pytest.approx(truth.B_SOL, abs=3)
    assert found.scaled.b_tensor == pytest.approx(truth.TENSOR, abs=0.3)
    assert found.sigma_a.sigma_a.min() > 0.99


def test_a_map_has_the_b_factors_of_the_data_and_not_those_of_the_model(protein, crystal):
    data = read_reflections(crystal[0] / "data.mtz")
    sharper = protein.clone()
    for place in sharper[0].all():
        place.atom.b_iso -= 8.0
    sharper.setup_cell_images()
    maps = [phased(model, data).density_map().data for model in (protein, sharper)]
    assert np.corrcoef(maps[0].ravel(), maps[1].ravel())[0, 1] > 0.999
    assert maps[1].std() == pytest.approx(maps[0].std(), rel=0.01)


def test_r_factors_are_of_work_and_free_reflections(crystal):
    folder, hkl, amplitudes, _, free = crystal
    found = phased_file(folder / "model.pdb", read_reflections(folder / "data.mtz"))
    factors = found.r_factors
    assert (factors.n_work, factors.n_free) == ((~free).sum(), free.sum())
    model = found.scaled.scale[found.measured] * np.abs(found.scaled.model[found.measured])
    place = {tuple(index): number for number, index in enumerate(found.reflections.hkl.tolist())}
    model = model[[place[tuple(index)] for index in hkl.tolist()]]
    for chosen, value in ((~free, factors.r_work), (free, factors.r_free)):
        expected = np.abs(amplitudes - model)[chosen].sum() / amplitudes[chosen].sum()
        assert value == pytest.approx(expected, rel=1e-4)
    assert sum(shell.n_free for shell in factors.shells) == free.sum()
    assert 0.1 < factors.r_work < 0.2
    assert factors.shells[0].coarsest > factors.shells[-1].finest


def test_the_error_of_r_free_is_the_spread_among_free_sets(crystal):
    folder, _, amplitudes, _, _ = crystal
    found = phased_file(folder / "model.pdb", read_reflections(folder / "data.mtz"))
    model = found.scaled.scale[found.measured] * np.abs(found.scaled.model[found.measured])
    amplitudes, differences = found.reflections.amplitudes, np.abs(found.reflections.amplitudes - model)
    generator, n_free = np.random.default_rng(0), 40
    sets = [generator.choice(len(model), n_free, replace=False) for _ in range(1000)]
    values = np.array([differences[each].sum() / amplitudes[each].sum() for each in sets])
    assert error_of_r_free(values.mean(), n_free) == pytest.approx(values.std(), rel=0.25)
    assert found.r_factors.r_free_error == error_of_r_free(found.r_factors.r_free, found.r_factors.n_free)
    assert error_of_r_free(None, 0) is None


def test_free_amplitudes_touch_nothing_but_r_free(crystal):
    folder = crystal[0]
    data = read_reflections(folder / "data.mtz")
    structure = crystal_structure(folder / "model.pdb", data)
    found = phased(structure, data)
    others = np.where(data.free, 5.0 * data.amplitudes[::-1] + 7, data.amplitudes)
    changed = phased(structure, replace(data, amplitudes=others))
    assert np.array_equal(found.map_coefficients(), changed.map_coefficients())
    assert np.array_equal(found.density_map().data, changed.density_map().data)
    assert np.array_equal(found.difference_coefficients(), changed.difference_coefficients())
    assert found.r_factors.r_work == changed.r_factors.r_work
    assert found.r_factors.r_free != changed.r_factors.r_free


def test_the_solvent_can_be_taken_off_a_map(protein, tmp_path):
    hkl, amplitudes, _ = simulated(protein, 3.5)
    write_mtz(tmp_path / "a.mtz", protein, hkl, usual_columns(amplitudes, np.arange(len(hkl)) % 17 == 3))
    found = phased(protein, read_reflections(tmp_path / "a.mtz"))
    alone = calculated(protein, found.hkl, 3.5).atoms
    far, near = (
        np.linalg.norm(values - alone) / np.linalg.norm(alone)
        for values in (found.map_coefficients(), found.atom_coefficients())
    )
    assert near < 0.1 < 0.3 < far


def test_what_is_held_out_or_not_measured_has_the_models_value(crystal):
    folder = crystal[0]
    data = read_reflections(folder / "data.mtz")
    data = data.selected(np.arange(len(data)) % 11 != 0)
    found = phased(crystal_structure(folder / "model.pdb", data), data)
    hidden = np.ones(len(found.hkl), dtype=bool)
    hidden[found.measured[found.shown]] = False
    assert hidden.sum() > len(found.hkl) / 10
    assert not found.shown[data.free].any()
    assert np.array_equal(found.map_coefficients()[hidden], (found.sigma_a.d * found.scaled.model)[hidden])
    assert not found.difference_coefficients()[hidden].any()


def test_a_map_shows_what_the_model_lacks(protein, crystal, tmp_path):
    folder = crystal[0]
    data = read_reflections(folder / "data.mtz")
    part = protein.clone()
    chain = part[0][0]
    lost = [np.array(atom.pos.tolist()) for atom in chain[60]] + [
        np.array(atom.pos.tolist()) for atom in chain[61]
    ]
    del chain[60:62]
    part.write_pdb(str(tmp_path / "part.pdb"))
    found = phased_file(tmp_path / "part.pdb", data)
    for coefficients, least in ((found.map_coefficients(), 1.0), (found.difference_coefficients(), 2.0)):
        density = found.density_map(coefficients)
        at = density.value_at(np.array(lost))
        assert at.mean() / density.data.std() > least


def test_the_mtz_has_maps_and_flags_that_are_read_again(crystal, tmp_path):
    folder = crystal[0]
    data = read_reflections(folder / "data.mtz")
    found = phased_file(folder / "model.pdb", data)
    path = tmp_path / "crystal.mtz"
    found.write_mtz(path)
    again = read_reflections(path)
    assert np.array_equal(again.hkl, data.hkl[np.lexsort(data.hkl.T[::-1])]) or len(again) == len(data)
    assert again.free.sum() == data.free.sum()
    density = DensityMap.from_file(path)
    assert np.allclose(density.data, found.density_map().data, atol=1e-4)
    assert {"FOFCWT", "PHFOFCWT", "FOM"} <= {column.label for column in read_mtz(path).columns}
