from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from openmm import app, unit

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.models import read_model
from openmm_density.validation.q_score import atom_q_scores, expected_q, q_scores, usual_q


@pytest.fixture(scope="module")
def virus(small_data):
    folder = small_data / "qr_6i5a"
    model = read_model(folder / "6i5a_box_complete.pdb")
    return DensityMap.from_file(folder / "6i5a_box.ccp4"), model.topology, model.positions


@pytest.fixture(scope="module")
def fragment(map5925, emd5925):
    return map5925, emd5925.topology, emd5925.positions


def spiral(n):
    """Points of Saff and Kuijlaars, one after the other."""
    points, turn = [], 0.0
    for k in range(n):
        height = -1 + 2 * k / (n - 1)
        turn = 0.0 if k in (0, n - 1) else turn + 3.6 / (n * (1 - height**2)) ** 0.5
        width = max(1 - height**2, 0) ** 0.5
        points.append(np.array([width * np.cos(turn), width * np.sin(turn), height]))
    return points


def trilinear(density_map, point):
    index = np.linalg.inv(density_map.matrix) @ (point - density_map.origin)
    low = np.floor(index).astype(int)
    if (low < 0).any() or (low + 1 >= density_map.size).any():
        return None
    part, value = index - low, 0.0
    for corner in np.ndindex(2, 2, 2):
        weight = np.prod([p if c else 1 - p for p, c in zip(part, corner)])
        i, j, k = low + corner
        value += weight * float(density_map.data[k, j, i])
    return value


def score_by_loops(density_map, positions, atom, sigma):
    """Q of one atom as the publication describes it, a point at a time, with the reference's A and B of the map."""
    data = density_map.data.astype(np.float64)
    high, low = min(data.mean() + 10 * data.std(), data.max()), max(data.mean() - data.std(), data.min())
    others = np.delete(positions, atom, axis=0)
    values, gaussian = [trilinear(density_map, positions[atom])] * 8, [high] * 8
    for shell in range(1, 21):
        radius = 0.1 * shell
        for attempt in range(50):
            points = [positions[atom] + radius * u for u in spiral(8 + 2 * attempt)]
            own = [p for p in points if np.linalg.norm(others - p, axis=1).min() >= 0.9 * radius]
            if len(own) >= 8:
                found = [trilinear(density_map, p) for p in own]
                values += [v for v in found if v is not None]
                reference = (high - low) * np.exp(-0.5 * (radius / sigma) ** 2) + low
                gaussian += [reference] * sum(v is not None for v in found)
                break
    return np.corrcoef(values, gaussian)[0, 1]


@pytest.mark.parametrize("sigma", [0.6, 0.4])
def test_scores_are_those_of_a_loop_over_points(fragment, sigma):
    density_map, topology, positions = fragment
    scores = q_scores(density_map, topology, positions, sigma=sigma)
    for atom in range(0, len(positions), 160 if sigma == 0.4 else 80):
        expected = score_by_loops(density_map, positions, atom, sigma)
        assert scores.atoms[atom] == pytest.approx(expected, abs=1e-5)


def test_published_value_of_tobacco_mosaic_virus(virus):
    # EMD-4413 with 6I5A: 0.679 at σ = 0.4 in the table that the authors of the Q-score publish for the EMDB.
    assert q_scores(*virus).mean == pytest.approx(0.679, abs=0.01)


def test_parts_of_the_atoms_have_the_scores_of_all(virus):
    parts = [atom_q_scores(*virus, part, 3) for part in range(3)]
    assert (np.isfinite(parts).sum(axis=0) <= 1).all()
    np.testing.assert_array_equal(np.fmax.reduce(parts), q_scores(*virus).atoms)


def test_means_are_over_atoms_without_hydrogens(virus):
    density_map, topology, positions = virus
    scores = q_scores(density_map, topology, positions)
    heavy = np.array([atom.element.symbol != "H" for atom in topology.atoms()])
    np.testing.assert_array_equal(np.isfinite(scores.atoms), heavy)
    assert scores.mean == pytest.approx(scores.atoms[heavy].mean())
    for residue in list(topology.residues())[::20]:
        of_residue = [scores.atoms[a.index] for a in residue.atoms() if heavy[a.index]]
        assert scores.residues[residue.index] == pytest.approx(np.mean(of_residue))


def test_perfect_gaussians_score_one():
    topology = app.Topology()
    residue = topology.addResidue("LIG", topology.addChain())
    topology.addAtom("C1", app.element.carbon, residue)
    step, centre = 0.1, np.array([3.0, 3.03, 2.98])
    grid = step * np.stack(np.meshgrid(*[np.arange(61)] * 3, indexing="ij"), axis=-1)
    density = np.exp(-0.5 * ((grid - centre) ** 2).sum(axis=-1) / 0.6**2)
    density_map = DensityMap(density.transpose(2, 1, 0), np.eye(3) * step, np.zeros(3))
    assert q_scores(density_map, topology, centre[None], sigma=0.6).mean == pytest.approx(1, abs=1e-3)
    nanometres = centre[None] * 0.1 * unit.nanometer
    assert q_scores(density_map, topology, nanometres, sigma=0.06 * unit.nanometer).mean > 0.999
    assert q_scores(density_map, topology, centre[None]).mean < 0.99


def test_what_cannot_be_scored_has_none(fragment):
    density_map, topology, positions = fragment
    moved = positions.copy()
    moved[:10] += 1000
    scores = q_scores(density_map, topology, moved)
    assert np.isnan(scores.atoms[:10]).all() and np.isfinite(scores.atoms[20:]).all()
    flat = replace(density_map, data=np.full_like(density_map.data, 5.1))
    assert q_scores(flat, topology, positions).mean == 0
    assert np.isnan(q_scores(flat, topology, positions + 1000).mean)
    together = positions.copy()
    together[1] = together[0]
    assert np.isfinite(q_scores(density_map, topology, together).atoms[2:]).all()


def test_errors(fragment):
    density_map, topology, positions = fragment
    with pytest.raises(InputError, match="positions"):
        q_scores(density_map, topology, positions[1:])
    with pytest.raises(InputError, match="sigma"):
        q_scores(density_map, topology, positions, sigma=0)
    hydrogen = app.Topology()
    hydrogen.addAtom("H", app.element.hydrogen, hydrogen.addResidue("LIG", hydrogen.addChain()))
    with pytest.raises(InputError, match="non-hydrogen"):
        q_scores(density_map, hydrogen, [[0, 0, 0]])


def test_the_expected_q_score_is_that_of_the_published_line():
    assert expected_q(2.0) == pytest.approx(1.1242 - 2 * 0.1866)
    assert expected_q(2.0, sigma=0.6) == pytest.approx(1.1192 - 2 * 0.1775)
    assert expected_q(3.0, "nucleotide", sigma=0.4) == pytest.approx(0.9436 - 3 * 0.1465)
    with pytest.raises(InputError, match="protein and nucleotide"):
        expected_q(2.0, "water")


def test_what_is_usual_of_a_model_is_that_of_its_polymers(virus, small_data):
    _, topology, _ = virus
    dna = read_model(small_data / "zoo/1bna_strand.pdb").topology
    assert usual_q(dna, 3.0) == pytest.approx(expected_q(3.0, "nucleotide"))
    assert usual_q(topology, 3.0) == pytest.approx(expected_q(3.0))
    assert usual_q(topology, 7.0) is None and usual_q(app.Topology(), 3.0) is None
