from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.models import read_model
from openmm_density.validation.fsc import (
    HALF_MAP_THRESHOLD,
    ShellCorrelation,
    half_map_fsc,
    model_fsc,
    shell_correlation,
)


def curve(*correlations):
    n = len(correlations)
    return ShellCorrelation(0.05 * np.arange(1, n + 1), np.array(correlations), np.full(n, 10))


@pytest.mark.parametrize("shape", [(12, 15, 10), (9, 8, 11)])
@pytest.mark.parametrize("skew", [0.0, 0.4])
def test_shells_are_those_of_a_loop_over_all_coefficients(shape, skew):
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=(2, *shape))
    second += 0.7 * first
    matrix = np.array([[1.1, skew, 0.1 * skew], [0, 1.3, -skew], [0, 0, 0.9]])
    found = shell_correlation(first, second, matrix)
    a, b = np.fft.fftn(first), np.fft.fftn(second)
    frequencies = [np.fft.fftfreq(n) for n in shape]
    width = 1 / (np.linalg.norm(matrix, axis=0) * shape[::-1]).max()
    sums = np.zeros((len(found.frequency) + 1, 4))
    for l_, k, h in np.ndindex(shape):
        hkl = np.array([frequencies[2][h], frequencies[1][k], frequencies[0][l_]])
        shell = round(np.linalg.norm(np.linalg.inv(matrix).T @ hkl) / width)
        if 1 <= shell < len(sums):
            x, y = a[l_, k, h], b[l_, k, h]
            sums[shell] += (x * y.conj()).real, abs(x) ** 2, abs(y) ** 2, 1
    cross, one, two, count = sums[1:].T
    np.testing.assert_allclose(found.correlation, cross / np.sqrt(one * two), atol=1e-12)
    np.testing.assert_array_equal(found.coefficients, count)
    assert found.frequency[-1] + width / 2 <= 0.5 / np.linalg.norm(matrix, axis=0).max() + 1e-9


def test_half_maps_fall_where_the_noise_takes_over(emd5925):
    clean = DensityMap.simulate(emd5925.topology, emd5925.positions, 3.0, 1.0)
    rng = np.random.default_rng(5)
    halves = []
    for _ in range(2):
        # White noise against a signal that ends at 3 Å: the curve falls there, at the latest.
        noise = rng.normal(scale=clean.data.std(), size=clean.shape)
        halves.append(replace(clean, data=clean.data + noise))
    found = half_map_fsc(*halves)
    assert found.resolution(HALF_MAP_THRESHOLD, dips=False) == pytest.approx(3.0, abs=0.15)
    masked = half_map_fsc(*halves, emd5925.positions)
    assert masked.resolution(HALF_MAP_THRESHOLD, dips=False) == pytest.approx(3.0, abs=0.25)
    middle = (masked.frequency > 0.25) & (masked.frequency < 0.3)
    assert masked.correlation[middle].mean() > np.interp(0.275, found.frequency, found.correlation)
    assert np.abs(found.correlation[found.frequency > 0.36]).max() < 0.15


@pytest.mark.parametrize(
    ("name", "model_name", "resolution"),
    [
        ("emd5925_frag/emd5925.mrc.gz", "emd5925_frag/5925_native.pdb", 3.64),
        ("emd6374_frag/emd6374.mrc.gz", "emd6374_frag/6374_native.pdb", 2.9),
        ("qr_6i5a/6i5a_box.ccp4", "qr_6i5a/6i5a_box_complete.pdb", 2.3),
        ("xraymap_3pqr_R32/3pqr.ccp4.gz", "xraymap_3pqr_R32/3pqr.pdb", 2.85),
    ],
)
def test_deposited_models_reach_the_resolution_of_their_maps(small_data, name, model_name, resolution):
    model = read_model(small_data / model_name)
    density_map = DensityMap.from_file(small_data / name)
    found = model_fsc(density_map, model.topology, model.positions, resolution).resolution()
    assert found == pytest.approx(resolution, rel=0.06)


def test_the_crossing_is_interpolated():
    assert curve(1, 0.9, 0.8, 0.2, 0).resolution() == pytest.approx(1 / 0.175)
    assert curve(1, 0.9, 0.8, 0.6, 0.6).resolution() == pytest.approx(4.0)
    assert curve(0.4, 0.3, 0.1, 0.1).resolution() == np.inf
    # What neighbours and solvent do to the first shells is no fall; a rise beyond a fall is none back.
    assert curve(0.3, 0.9, 0.9, 0.1, 0.7).resolution() == pytest.approx(1 / 0.175)
    # A shallower dip must not make a better curve look worse.
    assert curve(0.7, 0.4, 0.3, 0.6, 0.6, 0.2).resolution() == pytest.approx(1 / 0.2625)
    assert curve(0.8, 0.6, 0.4, 0.7, 0.7, 0.2).resolution() == pytest.approx(1 / 0.27)
    assert curve(0.8, 0.6, 0.4, 0.7, 0.7, 0.2).resolution(dips=False) == pytest.approx(1 / 0.125)
    # Nor is one shell's noise a resolution of a curve that fell before 10 Å.
    for dips in (True, False):
        noisy = curve(0.9, 0.1, 0.2, 0.1, 0.6, 0.1)
        assert noisy.resolution(dips=dips) == pytest.approx(1 / 0.075)
    assert curve(0.8, 0.6, 0.1, 0.2, 0.6, 0.1).resolution(dips=False) == pytest.approx(1 / 0.11)
    assert curve(0.1, 0.1, 0.6, 0.2).resolution(dips=False) == pytest.approx(1 / 0.1625)
    assert curve(0.8, 0.8, np.nan).resolution() == pytest.approx(10.0)
    assert curve(0.9, 0.2, 0.1, np.nan).resolution() == pytest.approx(1 / (0.05 + 0.05 * 4 / 7))
    assert curve(1, np.nan).as_dict()["correlation"] == [1, None]


@pytest.mark.parametrize("dips", [True, False])
@pytest.mark.parametrize(
    ("correlations", "said", "falls"),
    [
        ((1, 0.9, 0.8, 0.2, 0), "0.5 at 5.71 Å", True),
        ((1, 0.9, 0.8, 0.6, 0.6), "above 0.5 up to 4.00 Å", False),
        ((0.2, 0.9, 0.8, 0.6, 0.6), "above 0.5 up to 4.00 Å", False),
        ((0.9, 0.8, np.nan), "above 0.5 up to 10.00 Å", False),
        ((0.4, 0.3, 0.1, 0.1), "nowhere above 0.5", False),
        ((np.nan, np.nan), "nowhere above 0.5", False),
    ],
)
def test_a_curve_that_does_not_fall_is_told_apart(correlations, said, falls, dips):
    found = curve(*correlations).crossing(dips=dips)
    assert str(found) == said and found.falls is falls and found.threshold == 0.5
    assert found.resolution == curve(*correlations).resolution(dips=dips)


def test_errors(map5925, emd5925):
    topology, positions = emd5925.topology, emd5925.positions
    with pytest.raises(InputError, match="shapes"):
        shell_correlation(np.zeros((4, 4, 4)), np.zeros((4, 4, 5)), np.eye(3))
    with pytest.raises(InputError, match="different grids"):
        half_map_fsc(map5925, replace(map5925, origin=map5925.origin + 1))
    with pytest.raises(InputError, match="the same map"):
        half_map_fsc(map5925, replace(map5925, data=2 * map5925.data), positions)
    with pytest.raises(InputError, match="near the map"):
        model_fsc(map5925, topology, positions + 1000, 3.64)
    with pytest.raises(InputError, match="resolution"):
        model_fsc(map5925, topology, positions, 0)
    with pytest.raises(InputError, match="positions"):
        model_fsc(map5925, topology, positions[1:], 3.64)
