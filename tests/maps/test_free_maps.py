"""Which maps can test what was fitted into a map: those of adenylate kinase, as small as cubes of 5 Å allow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.maps.map_agreement import agreement_inside, check_free_map, is_same_map
from openmm_density.models import read_model
from openmm_density.models.superposition import superposition

from ..fragments import fragment
from ..small_models import ADK_CLOSED

RESOLUTION = 5.0


def shifted(density_map, *shift):
    return replace(density_map, origin=density_map.origin + np.array(shift))


@pytest.fixture(scope="module")
def closed():
    return read_model(ADK_CLOSED)


@pytest.fixture(scope="module")
def whole(closed):
    return DensityMap.simulate(closed.topology, closed.positions, RESOLUTION, 1.5, margin=12.0)


@pytest.fixture(scope="module")
def half_maps(closed, whole):
    """Return half maps by the noise that each has of its own, in standard deviations of the density."""

    def made(noise, seed):
        grid = {"like": whole, "noise": noise, "seed": seed}
        return DensityMap.simulate(closed.topology, closed.positions, RESOLUTION, **grid)

    return {noise: (made(noise, 1), made(noise, 2)) for noise in (0.3, 1.0, 2.0)}


@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_one_half_tests_the_other_and_their_mean(half_maps, noise):
    first, second = half_maps[noise]
    mean = replace(first, data=(first.data + second.data) / 2)
    coarser = second.resample(2.1)
    for free, fitted in ((second, first), (second, mean), (coarser, first), (first, coarser)):
        assert check_free_map(free, fitted, RESOLUTION) is None


def test_a_crystals_free_map_may_be_of_another_cell_of_its_lattice(half_maps):
    first, second = (replace(each, periodic=True) for each in half_maps[0.3])
    here = agreement_inside(second, first, RESOLUTION)
    edges = second.matrix * second.size
    there = shifted(second, *(edges @ [1, -2, 3]))
    assert agreement_inside(there, first, RESOLUTION) == pytest.approx(here, abs=1e-6)
    half = second.size // 2
    begun_elsewhere = replace(
        second,
        data=np.roll(second.data, tuple(-half[::-1]), (0, 1, 2)),
        origin=second.origin + second.matrix @ half,
    )
    assert check_free_map(begun_elsewhere, first, RESOLUTION) is None
    # Of a map that ends nothing is known beyond it.
    assert agreement_inside(replace(there, periodic=False), first, RESOLUTION) is None


def test_noise_that_outweighs_the_density_is_doubted_and_a_small_shift(half_maps):
    first, second = half_maps[0.3]
    for free, fitted in (half_maps[2.0], (shifted(second, 4, 3, 0), first)):
        assert "agrees poorly with the map" in check_free_map(free, fitted, RESOLUTION)


def test_another_conformation_is_doubted_where_it_lies_in_place(closed, whole, kinase):
    traces = [
        [atom.index for atom in model.topology.atoms() if atom.name == "CA"] for model in (kinase, closed)
    ]
    core = slice(160, 214)
    rotation, shift = superposition(kinase.positions[traces[0]][core], closed.positions[traces[1]][core])
    placed = kinase.positions @ rotation.T + shift
    free = DensityMap.simulate(kinase.topology, placed, RESOLUTION, 1.5)
    assert "another conformation" in check_free_map(free, whole, RESOLUTION)


def test_another_molecule_is_refused(whole, tmp_path):
    other = fragment(tmp_path / "model.pdb", residues=97)
    placed = other.positions - other.positions.mean(axis=0) + whole.origin + whole.matrix @ (whole.size / 2)
    free = DensityMap.simulate(other.topology, placed, RESOLUTION, 1.5, margin=12.0)
    with pytest.raises(InputError, match=r"0\.2 or more, found -?0\.[0-2]\d: give another map"):
        check_free_map(free, whole, RESOLUTION)


@pytest.mark.parametrize(
    "spoiled, said",
    [
        (lambda free: shifted(free, 8, 6, 0), "does not show what the map shows, or lies elsewhere"),
        (lambda free: replace(free, data=free.data[:, :, ::-1].copy()), "does not show what the map shows"),
        (lambda free: shifted(free, 500, 0, 0), "has no density where the map has it"),
        (lambda free: replace(free, data=np.full(free.shape, 0.5)), "has no density where the map has it"),
        (lambda free: free.inverted(), r"contrast of the free map is inverted .*correlate by -0\.9"),
    ],
)
def test_what_cannot_test_the_map_is_refused(half_maps, spoiled, said):
    first, second = half_maps[0.3]
    with pytest.raises(InputError, match=said):
        check_free_map(spoiled(second), first, RESOLUTION)


def test_the_map_itself_is_not_free(half_maps, whole):
    fitted, other = half_maps[0.3]
    # Scaled, rounded, cut out, put into a larger box, moved to other voxel numbers.
    larger = np.zeros(tuple(np.array(fitted.shape) + 4), np.float32)
    larger[2:-2, 2:-2, 2:-2] = fitted.data
    same = [
        replace(fitted, data=2 * fitted.data - 1),
        replace(fitted, data=fitted.data.astype(np.float16).astype(np.float32)),
        replace(
            fitted,
            data=fitted.data[4:-4, 4:-4, 4:-4].copy(),
            origin=fitted.origin + fitted.matrix @ np.full(3, 4.0),
        ),
        replace(fitted, data=larger, origin=fitted.origin - fitted.matrix @ np.full(3, 2.0)),
    ]
    for each in same:
        assert is_same_map(each, fitted)
        with pytest.raises(InputError, match="is the very map that is fitted into"):
            check_free_map(each, fitted, RESOLUTION)
    assert not is_same_map(other, fitted) and not is_same_map(whole, fitted)
