from __future__ import annotations

import gemmi
import numpy as np
import pytest
from openmm import unit

from openmm_density import DensityMap
from openmm_density.base.errors import InputError

TRICLINIC = (20.0, 24.0, 18.0, 80.0, 95.0, 110.0)


def orthogonalization(cell):
    return np.array(gemmi.UnitCell(*cell).orth.mat.tolist())


def random_data(shape, seed=0):
    return np.random.default_rng(seed).integers(-100, 100, shape).astype(np.float32)


def points_inside(density_map, n=50, seed=1):
    index = np.random.default_rng(seed).uniform(0, density_map.size - 1, (n, 3))
    return density_map.origin + index @ density_map.matrix.T


def grid_points(density_map):
    k, j, i = np.meshgrid(*map(np.arange, density_map.shape), indexing="ij")
    return density_map.origin + np.stack([i, j, k], axis=-1) @ density_map.matrix.T


class TestConstruction:
    def test_properties(self):
        matrix = orthogonalization(TRICLINIC) / (10, 12, 9)
        density_map = DensityMap(np.ones((9, 12, 10)), matrix, [1, 2, 3])
        assert density_map.shape == (9, 12, 10)
        assert density_map.data.dtype == np.float32
        np.testing.assert_array_equal(density_map.size, [10, 12, 9])
        np.testing.assert_allclose(density_map.voxel_size, 2.0)
        np.testing.assert_allclose(density_map.cell, TRICLINIC)
        assert density_map.voxel_volume * 1080 == pytest.approx(gemmi.UnitCell(*TRICLINIC).volume)
        assert not density_map.is_orthogonal
        assert DensityMap(np.ones((1, 1, 1)), np.diag([1, 2, 3]), np.zeros(3)).is_orthogonal
        assert not DensityMap(np.ones((1, 1, 1)), np.diag([1, -2, 3]), np.zeros(3)).is_orthogonal

    @pytest.mark.parametrize(
        ("data", "matrix", "origin", "part"),
        [
            (np.ones((2, 2)), np.eye(3), np.zeros(3), "shape (nz, ny, nx)"),
            (np.ones((0, 2, 2)), np.eye(3), np.zeros(3), "shape (nz, ny, nx)"),
            (np.ones((2, 2, 2)), np.ones(3), np.zeros(3), "matrix"),
            (np.ones((2, 2, 2)), np.eye(3), np.zeros(2), "origin"),
            (np.ones((2, 2, 2)), np.ones((3, 3)), np.zeros(3), "span"),
            (np.ones((2, 2, 2)), np.diag([1, 0, 1]), np.zeros(3), "span"),
            (np.ones((2, 2, 2)), np.eye(3), [np.nan, 0, 0], "finite"),
            (np.full((2, 2, 2), np.nan), np.eye(3), np.zeros(3), "NaN"),
        ],
    )
    def test_errors(self, data, matrix, origin, part):
        with pytest.raises(InputError, match=part.replace("(", r"\(").replace(")", r"\)")):
            DensityMap(data, matrix, origin)


class TestCrop:
    @pytest.mark.parametrize("matrix", [np.diag([1.0, 1.2, 1.5]), orthogonalization(TRICLINIC) / 20])
    def test_finite(self, matrix):
        density_map = DensityMap(random_data((20, 22, 24)), matrix, [5, -3, 2])
        around = density_map.origin + np.array([[10, 11, 9], [12, 10.5, 11.2]]) @ matrix.T
        part = density_map.crop(around, 2.5)
        offset = density_map.to_index(part.origin[None])[0]
        np.testing.assert_allclose(offset, np.rint(offset), atol=1e-9)
        i, j, k = np.rint(offset).astype(int)
        nz, ny, nx = part.shape
        np.testing.assert_array_equal(part.data, density_map.data[k : k + nz, j : j + ny, i : i + nx])
        assert not np.shares_memory(part.data, density_map.data)
        near = density_map.mask_around(around, 2.5)
        assert part.mask_around(around, 2.5).sum() == near.sum()

    def test_margin_takes_units_and_stops_at_the_edge(self):
        density_map = DensityMap(random_data((20, 22, 24)), np.eye(3), np.zeros(3))
        corner = density_map.crop(np.array([[1, 1, 1]]) * unit.angstrom, 0.3 * unit.nanometer)
        assert corner.shape == (5, 5, 5)
        np.testing.assert_array_equal(corner.origin, 0)

    def test_periodic_continues_across_borders(self):
        matrix = orthogonalization(TRICLINIC) / (10, 12, 9)
        density_map = DensityMap(random_data((9, 12, 10)), matrix, [1, 2, 3], periodic=True)
        around = density_map.origin + np.array([[-1.5, 13, 4]]) @ matrix.T
        part = density_map.crop(around, 12.0)
        assert not part.periodic and part.shape > density_map.shape
        points = points_inside(part)
        np.testing.assert_allclose(part.value_at(points), density_map.value_at(points), atol=1e-3)

    def test_errors(self):
        density_map = DensityMap(random_data((20, 22, 24)), np.eye(3), np.zeros(3))
        for around, margin, part in (
            ([[100, 0, 0]], 5, "outside"),
            ([[np.nan, 0, 0]], 5, "NaN"),
            (np.zeros((0, 3)), 5, "positions are empty"),
            ([[1, 1, 1]], -1, "margin"),
        ):
            with pytest.raises(InputError, match=part):
                density_map.crop(around, margin)


def gaussians(points, centers, sigma):
    return sum(np.exp(-((points - c) ** 2).sum(axis=-1) / (2 * sigma**2)) for c in centers)


def gaussian_map(matrix, shape, sigma, origin=(3.0, -4.0, 5.0)):
    empty = DensityMap(np.zeros(shape), matrix, origin)
    middle = empty.origin + matrix @ (empty.size / 2)
    centers = middle + np.array([[0.3, -0.2, 0.1], [2.0, 1.0, -1.5]])
    return DensityMap(gaussians(grid_points(empty), centers, sigma), matrix, origin), centers


class TestResample:
    @pytest.mark.parametrize(
        "matrix", [np.diag([1.0, 1.1, 1.2]), orthogonalization(TRICLINIC) / (20, 22, 17)]
    )
    @pytest.mark.parametrize("periodic", [False, True])
    @pytest.mark.parametrize("voxel_size", [0.57, 0.9, 1.4])
    def test_density_stays_where_it_is(self, matrix, periodic, voxel_size):
        density_map, centers = gaussian_map(matrix, (30, 31, 32), sigma=1.8)
        density_map = DensityMap(density_map.data, matrix, density_map.origin, periodic)
        resampled = density_map.resample(voxel_size * unit.angstrom)
        assert resampled.periodic == periodic and resampled.data.dtype == np.float32
        assert (resampled.voxel_size <= voxel_size + 1e-9).all()
        np.testing.assert_allclose(resampled.matrix * resampled.size, matrix * density_map.size)
        np.testing.assert_array_equal(resampled.origin, density_map.origin)
        np.testing.assert_allclose(resampled.data, gaussians(grid_points(resampled), centers, 1.8), atol=2e-3)

    def test_plane_wave_of_a_crystal_is_exact(self):
        matrix = orthogonalization(TRICLINIC) / (20, 22, 18)
        empty = DensityMap(np.zeros((18, 22, 20)), matrix, np.zeros(3), periodic=True)

        def wave(density_map):
            index = density_map.to_index(grid_points(density_map).reshape(-1, 3)).reshape(
                *density_map.shape, 3
            )
            return np.cos(2 * np.pi * (index / density_map.size) @ [2, -3, 1] + 0.4)

        fine = DensityMap(wave(empty), matrix, np.zeros(3), periodic=True).resample(0.6)
        np.testing.assert_allclose(fine.data, wave(fine), atol=1e-5)

    def test_opposite_edges_of_a_finite_map_do_not_ring(self):
        empty = DensityMap(np.zeros((12, 12, 30)), np.eye(3), np.zeros(3))
        ramp = DensityMap(grid_points(empty)[..., 0], np.eye(3), np.zeros(3))
        fine = ramp.resample(0.5)
        inside = grid_points(fine)[..., 0] <= 29
        error = np.abs(fine.data - grid_points(fine)[..., 0])[inside]
        assert error.max() < 0.1
        assert fine.data.max() < 29.2 and fine.data.min() > -0.2

    @pytest.mark.parametrize("voxel_size", [0, -1, np.nan])
    def test_errors(self, voxel_size):
        with pytest.raises(InputError, match="voxel_size"):
            DensityMap(random_data((4, 5, 6)), np.eye(3), np.zeros(3)).resample(voxel_size)


class TestGaussianFilter:
    @pytest.mark.parametrize(
        "matrix", [np.diag([1.0, 1.1, 1.2]), orthogonalization(TRICLINIC) / (20, 22, 17)]
    )
    @pytest.mark.parametrize("periodic", [False, True])
    def test_a_gaussian_widens_as_it_should(self, matrix, periodic):
        density_map, centers = gaussian_map(matrix, (32, 32, 32), sigma=1.5)
        smooth = DensityMap(density_map.data, matrix, density_map.origin, periodic).gaussian_filter(1.0)
        wide = np.sqrt(1.5**2 + 1.0)
        expected = (1.5 / wide) ** 3 * gaussians(grid_points(density_map), centers, wide)
        np.testing.assert_allclose(smooth.data, expected, atol=2e-3)
        assert smooth.periodic == periodic

    def test_periodic_wraps_and_finite_does_not(self):
        data = np.zeros((10, 10, 10), np.float32)
        data[5, 5, 0] = 1
        for periodic in (True, False):
            smooth = DensityMap(data, np.eye(3), np.zeros(3), periodic).gaussian_filter(1.5).data
            assert smooth.sum() == pytest.approx(1, abs=1e-4)
            assert (smooth[5, 5, 9] > 0.5 * smooth[5, 5, 1]) == periodic

    def test_errors(self):
        with pytest.raises(InputError, match="sigma"):
            DensityMap(random_data((4, 5, 6)), np.eye(3), np.zeros(3)).gaussian_filter(-1)


def test_an_array_is_placed_in_any_unit():
    data = random_data((4, 5, 6))
    placed = DensityMap.from_array(data, (0.1, 0.1, 0.2) * unit.nanometers, [1, 2, 3] * unit.nanometers)
    np.testing.assert_allclose(placed.matrix, np.diag([1.0, 1.0, 2.0]))
    np.testing.assert_allclose(placed.origin, [10.0, 20.0, 30.0])
    assert DensityMap.from_array(data, 1.5).voxel_size.tolist() == [1.5] * 3
    with pytest.raises(InputError, match="voxel_size must be a positive length"):
        DensityMap.from_array(data, (1.0, 2.0))
    for argument, given in {
        "voxel_size": (data, "1 Å"),
        "data": (1j * data, 1.0),
        "origin": (data, 1.0, [1, [2]]),
    }.items():
        with pytest.raises(InputError, match=f"{argument} must be real numbers"):
            DensityMap.from_array(*given)


def test_normalized():
    normal = DensityMap(random_data((14, 15, 16)) + 1000, np.eye(3), np.zeros(3)).normalized()
    assert normal.data.mean(dtype=np.float64) == pytest.approx(0, abs=1e-5)
    assert normal.data.std(dtype=np.float64) == pytest.approx(1, abs=1e-5)
    with pytest.raises(InputError, match="one value"):
        DensityMap(np.ones((4, 5, 6)), np.eye(3), np.zeros(3)).normalized()


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("size", [1e4, 1e30, 1e300])
@pytest.mark.parametrize("method", ["resample", "gaussian_filter", "crop", "mask_around"])
def test_what_memory_cannot_hold_is_refused_before_it_is_taken(method, size, periodic):
    density_map = DensityMap(random_data((4, 5, 6)), np.eye(3), np.zeros(3), periodic)
    place = np.zeros((1, 3))
    if method == "gaussian_filter" and periodic and size == 1e4:
        # As wide as that, all that is left of a crystal is its mean.
        smooth = density_map.gaussian_filter(size).data
        np.testing.assert_allclose(smooth, density_map.data.mean(), rtol=1e-3)
        return
    arguments = {"resample": (1 / size,), "gaussian_filter": (size,)}.get(method, (place, size))
    with pytest.raises(InputError, match="more than fits in memory"):
        getattr(density_map, method)(*arguments)


@pytest.mark.parametrize("far", [1e17, 1e30, 1e300])
def test_positions_beyond_all_bounds_are_in_no_box(far):
    density_map = DensityMap(random_data((4, 5, 6)), np.eye(3), np.zeros(3), periodic=True)
    with pytest.raises(InputError, match="too far from the map"):
        density_map.crop([[far, 0, 0]], 3.0)


class TestMask:
    @pytest.mark.parametrize(
        "matrix", [np.diag([1.0, 1.1, 1.2]), orthogonalization(TRICLINIC) / (20, 22, 17)]
    )
    @pytest.mark.parametrize("periodic", [False, True])
    @pytest.mark.parametrize("radius", [0.4, 3.0, 7.0])
    def test_every_distance(self, matrix, periodic, radius):
        density_map = DensityMap(np.zeros((9, 10, 11)), matrix, [3, -4, 5], periodic)
        index = np.random.default_rng(2).uniform(-6, density_map.size + 6, (15, 3))
        index[0] = 3, 4, 5  # on a voxel
        positions = density_map.origin + index @ matrix.T
        images = (
            np.stack(np.meshgrid(*[np.arange(-2, 3)] * 3), axis=-1).reshape(-1, 3)
            if periodic
            else np.zeros((1, 3))
        )
        expected = np.zeros(density_map.shape, dtype=bool)
        for shift in images @ (matrix * density_map.size).T:
            for position in positions + shift:
                expected |= ((grid_points(density_map) - position) ** 2).sum(axis=-1) <= radius**2
        np.testing.assert_array_equal(density_map.mask_around(positions, radius), expected)
        assert expected.any()

    def test_sphere_around_a_grid_point_includes_its_surface(self):
        density_map = DensityMap(np.zeros((9, 9, 9)), np.eye(3) * 1.05, np.zeros(3))
        mask = density_map.mask_around(np.full((1, 3), 4 * 1.05), 2 * 1.05)
        assert mask.sum() == 33

    def test_nothing_near(self):
        density_map = DensityMap(np.zeros((9, 9, 9)), np.eye(3), np.zeros(3))
        assert not density_map.mask_around([[1e6, 0, 0]], 3.0).any()
        assert density_map.mask_around([[1e6, 0, 0], [4, 4, 4]], 0.5 * unit.nanometer).any()

    def test_errors(self):
        density_map = DensityMap(np.zeros((9, 9, 9)), np.eye(3), np.zeros(3))
        with pytest.raises(InputError, match="radius"):
            density_map.mask_around([[1, 1, 1]], -1)
        with pytest.raises(InputError, match="NaN"):
            density_map.mask_around([[1, np.nan, 1]], 1)


class TestValueAt:
    @pytest.mark.parametrize("cell", [(20.0, 24.0, 18.0, 90.0, 90.0, 90.0), TRICLINIC])
    def test_periodic_as_gemmi(self, cell):
        grid = gemmi.FloatGrid(random_data((10, 12, 9)).astype(np.float32))
        grid.set_unit_cell(gemmi.UnitCell(*cell))
        density_map = DensityMap(
            grid.array.T, orthogonalization(cell) / (10, 12, 9), np.zeros(3), periodic=True
        )
        points = np.random.default_rng(4).uniform(-40, 60, (100, 3))
        expected = [grid.interpolate_value(gemmi.Position(*point)) for point in points]
        np.testing.assert_allclose(density_map.value_at(points), expected, atol=1e-3)

    def test_finite(self):
        density_map = DensityMap(random_data((4, 5, 6)), np.eye(3) * 1.05, np.array([0.1, 0.2, 0.3]))
        np.testing.assert_allclose(
            density_map.value_at(grid_points(density_map).reshape(-1, 3)),
            density_map.data.reshape(-1),
            atol=1e-4,
        )
        outside = [[0.05, 1, 1], [5.5, 1, 1], [1, 1, 4], [np.nan, 1, 1]]
        assert np.isnan(density_map.value_at(outside)).all()
        assert np.isfinite(density_map.value_at(np.array([[0.1, 0.1, 0.1]]) * unit.nanometer)).all()
