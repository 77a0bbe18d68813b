"""The likelihood of measured amplitudes, by positions and B factors."""

from dataclasses import replace

import numpy as np
import pytest

from openmm_density.extensions.crystal_fit.amplitude_likelihood import AmplitudeLikelihood
from openmm_density.extensions.crystals import crystal_structure, phased, read_reflections
from openmm_density.extensions.crystals.sigma_a import log_likelihood


def atoms_of(structure):
    atoms = [cra.atom for cra in structure[0].all()]
    positions = np.array([atom.pos.tolist() for atom in atoms])
    values = np.array([[atom.b_iso, atom.occ] for atom in atoms])
    return [atom.element.name for atom in atoms], positions, values[:, 0], values[:, 1]


@pytest.fixture(scope="module")
def reflections(folder):
    return read_reflections(folder / "data.mtz")


@pytest.fixture(scope="module")
def start(folder, reflections):
    return crystal_structure(folder / "start.pdb", reflections)


@pytest.fixture(scope="module")
def likelihood(start, reflections):
    return AmplitudeLikelihood(phased(start, reflections), *atoms_of(start))


def test_derivatives_are_those_of_finite_differences(likelihood, start):
    _, positions, b_factors, _ = atoms_of(start)
    found = likelihood(positions, b_factors)
    rng = np.random.default_rng(0)
    moved, wider = 1e-3 * rng.normal(size=positions.shape), 1e-2 * rng.normal(size=b_factors.shape)
    for dx, db, slope in (
        (moved, 0 * wider, (found.by_position * moved).sum()),
        (0 * moved, wider, (found.by_b * wider).sum()),
    ):
        ahead, behind = (likelihood(positions + s * dx, b_factors + s * db).loss for s in (1, -1))
        assert (ahead - behind) / 2 == pytest.approx(slope, rel=2e-3)


def test_differences_are_those_of_reads_likelihood(start, reflections, likelihood):
    """Of two B factors, with the scale, solvent and σA of the first."""
    found = phased(start, reflections)
    _, positions, b_factors, _ = atoms_of(start)
    wider = start.clone()
    for cra in wider[0].all():
        cra.atom.b_iso += 2.0
    change = AmplitudeLikelihood(found, *atoms_of(wider))
    shown = found.measured[found.shown]
    atoms = likelihood._factor * (
        change._of_atoms(positions, b_factors + 2) - likelihood._of_atoms(positions, b_factors)
    )
    total = found.sigma_a.total[shown] * reflections.epsilon[found.shown]
    d, sigma_a = found.sigma_a.d[shown], found.sigma_a.sigma_a[shown]
    losses = []
    for model in (found.scaled.model[shown], found.scaled.model[shown] + atoms):
        # Normalised so that σA E_c is D F_c in units of the data.
        data = reflections.amplitudes[found.shown] / found.scaled.scale[shown] / np.sqrt(total)
        of_model = d * np.abs(model) / np.sqrt(total) / sigma_a
        losses.append(-log_likelihood(data, of_model, sigma_a, reflections.centric[found.shown]).sum())
    mine = likelihood(positions, b_factors + 2).loss - likelihood(positions, b_factors).loss
    assert mine == pytest.approx(losses[1] - losses[0], rel=1e-3)


def test_curvatures_are_about_the_second_derivatives_of_the_true_model(folder, reflections):
    true = crystal_structure(folder / "true.pdb", reflections)
    likelihood = AmplitudeLikelihood(phased(true, reflections), *atoms_of(true))
    _, positions, b_factors, _ = atoms_of(true)
    by_coordinate, by_b = likelihood.curvatures(b_factors)
    ratios = []
    for atom in range(0, len(positions), 12):
        step = np.zeros_like(positions)
        step[atom, 0] = 0.02
        ahead, behind = (likelihood(positions + s * step, b_factors).by_position[atom, 0] for s in (1, -1))
        ratios.append((ahead - behind) / 0.04 / by_coordinate[atom])
    assert 0.5 < np.median(ratios) < 2.0 and (by_b > 0).all()


def test_free_amplitudes_have_no_part_in_it(start, reflections):
    _, positions, b_factors, _ = atoms_of(start)
    rng = np.random.default_rng(2)
    others = np.where(reflections.free, rng.uniform(0, 500, len(reflections)), reflections.amplitudes)
    results = []
    for amplitudes in (reflections.amplitudes, others):
        data = replace(reflections, amplitudes=amplitudes)
        results.append(
            AmplitudeLikelihood(phased(start, data), *atoms_of(start))(positions + 0.1, b_factors + 1)
        )
    one, other = results
    assert one.loss == other.loss
    assert np.array_equal(one.by_position, other.by_position) and np.array_equal(one.by_b, other.by_b)
