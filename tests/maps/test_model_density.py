from __future__ import annotations

import pickle
import tracemalloc

import gemmi
import numpy as np
import pytest
from openmm import app, unit

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.maps.model_density import ModelDensity

from .test_density_map import TRICLINIC, grid_points, orthogonalization


def chain_of(*symbols):
    topology = app.Topology()
    residue = topology.addResidue("LIG", topology.addChain())
    for symbol in symbols:
        topology.addAtom(symbol, app.Element.getBySymbol(symbol) if symbol else None, residue)
    return topology


def analytic_density(symbol, distances, b, d, table):
    """Integrate the scattering of an atom up to resolution d: what a perfect map of it holds at these distances."""
    coefficients = getattr(gemmi.Element(symbol), table)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    total = np.zeros_like(distances)
    for s, weight in zip((nodes + 1) / (2 * d), weights / (2 * d)):
        shell = 4 * np.pi * s**2 * coefficients.calculate_sf(s**2 / 4) * np.exp(-b * s**2 / 4)
        total += weight * shell * np.sinc(2 * s * distances)
    return total


class TestSimulate:
    POSITIONS = np.array([[0.13, 0.2, 0.3], [1.9, 0.4, -0.2], [-2.2, 3.1, 1.4]])

    @pytest.mark.parametrize("scattering", ["electron", "xray"])
    @pytest.mark.parametrize(
        ("d", "voxel_size", "b"), [(2.0, 0.5, None), (3.0, 1.0, None), (3.0, 1.45, None), (5.0, 1.0, 20.0)]
    )
    def test_integral_over_the_form_factors(self, scattering, d, voxel_size, b):
        topology = chain_of("C", "O", "S")
        density_map = DensityMap.simulate(
            topology, self.POSITIONS, d, voxel_size, b_factors=b, scattering=scattering
        )
        np.testing.assert_allclose(density_map.voxel_size, voxel_size)
        table = "c4322" if scattering == "electron" else "it92"
        points = grid_points(density_map)
        expected = sum(
            analytic_density(symbol, np.linalg.norm(points - x, axis=-1), b or 8 * d, d, table)
            for symbol, x in zip("COS", self.POSITIONS)
        )
        near = density_map.mask_around(self.POSITIONS, 3.0)
        np.testing.assert_allclose(density_map.data[near], expected[near], atol=0.02 * expected.max())
        assert np.corrcoef(density_map.data[near], expected[near])[0, 1] > 0.9995

    def test_box_reaches_the_margin_beyond_the_atoms(self):
        density_map = DensityMap.simulate(
            chain_of("C", "O", "S"), self.POSITIONS / 10 * unit.nanometer, 4 * unit.angstrom, margin=7
        )
        np.testing.assert_allclose(density_map.voxel_size, 1.0)
        assert (density_map.origin <= self.POSITIONS.min(axis=0) - 7).all()
        end = density_map.origin + density_map.size - 1
        assert (end >= self.POSITIONS.max(axis=0) + 7).all()

    @pytest.mark.parametrize(
        "matrix", [np.diag([0.9, 1.0, 1.1]), orthogonalization(TRICLINIC) / (20, 22, 18)]
    )
    def test_on_the_grid_of_another_map(self, matrix):
        other = DensityMap(np.zeros((20, 21, 22)), matrix, [-9, -10, -8.5])
        density_map = DensityMap.simulate(chain_of("C", "O", "S"), self.POSITIONS, 4.0, like=other)
        assert density_map.shape == other.shape and not other.data.any()
        expected = sum(
            analytic_density(s, np.linalg.norm(grid_points(other) - x, axis=-1), 32.0, 4.0, "c4322")
            for s, x in zip("COS", self.POSITIONS)
        )
        near = density_map.mask_around(self.POSITIONS, 3.0)
        np.testing.assert_allclose(density_map.data[near], expected[near], atol=0.02 * expected.max())
        assert np.corrcoef(density_map.data[near], expected[near])[0, 1] > 0.9995

    def test_a_finite_grid_cuts_off_and_a_crystal_wraps(self):
        data = np.zeros((40, 40, 40))
        inside = np.array([[20.0, 20.0, 20.0]])
        corner = np.array([[0.0, 0.0, 0.0]])
        topology = chain_of("C")
        crystal = DensityMap(data, np.eye(3), np.zeros(3), periodic=True)
        in_middle = DensityMap.simulate(topology, inside, 4.0, like=crystal)
        at_corner = DensityMap.simulate(topology, corner, 4.0, like=crystal)
        np.testing.assert_allclose(
            np.roll(in_middle.data, (20, 20, 20), (0, 1, 2)), at_corner.data, atol=1e-4
        )
        finite = DensityMap.simulate(topology, corner, 4.0, like=DensityMap(data, np.eye(3), np.zeros(3)))
        np.testing.assert_allclose(finite.data[:8, :8, :8], at_corner.data[:8, :8, :8], atol=1e-4)
        assert not finite.data[-3:].any()
        outside = DensityMap.simulate(topology, corner - 500, 4.0, like=finite)
        assert not outside.data.any()

    def test_noise_is_scaled_seeded_and_band_limited(self):
        rng = np.random.default_rng(0)
        positions = rng.uniform(0, 20, (100, 3))
        topology = chain_of(*["C"] * 100)
        clean = DensityMap.simulate(topology, positions, 5.0, 1.0)
        noisy = DensityMap.simulate(topology, positions, 5.0, 1.0, noise=0.5, seed=3)
        noise = noisy.data - clean.data
        inside = clean.data[clean.mask_around(positions, 3.0)]
        assert noise.std() == pytest.approx(0.5 * inside.std(), rel=1e-3)
        frequencies = np.meshgrid(*[np.fft.fftfreq(n) for n in noise.shape], indexing="ij")
        beyond = sum(f**2 for f in frequencies) > 1 / 4.9**2
        assert np.abs(np.fft.fftn(noise))[beyond].max() < 1e-3 * np.abs(np.fft.fftn(noise)).max()
        again = DensityMap.simulate(topology, positions, 5.0, 1.0, noise=0.5, seed=3)
        np.testing.assert_array_equal(again.data, noisy.data)
        assert not np.array_equal(
            DensityMap.simulate(topology, positions, 5.0, 1.0, noise=0.5, seed=4).data, noisy.data
        )

    def test_noise_needs_density_to_scale_it(self):
        empty = DensityMap(np.zeros((9, 9, 9)), np.eye(3), [500, 0, 0])
        with pytest.raises(InputError, match="noise"):
            DensityMap.simulate(chain_of("C", "O", "S"), self.POSITIONS, 4.0, like=empty, noise=0.1)

    def test_voxels_that_cannot_hold_the_resolution_are_warned_of(self, recwarn):
        model = chain_of("C", "O", "S"), self.POSITIONS, 4.0
        DensityMap.simulate(*model, 2.0)
        assert not recwarn
        with pytest.warns(
            UserWarning, match="voxels of 2.5 Å hold no detail finer than 5 Å.* no larger than 2 Å"
        ):
            DensityMap.simulate(*model, 2.5)

    @pytest.mark.parametrize("like", [False, True])
    @pytest.mark.parametrize("resolution", [0.1, 0.99, 1e-300])
    def test_voxels_that_hold_nothing_of_the_resolution_are_refused_before_any_work(
        self, monkeypatch, resolution, like
    ):
        monkeypatch.setattr(ModelDensity, "on_grid", None)
        grid = (
            {"like": DensityMap(np.zeros((9, 9, 9)), np.eye(3), np.zeros(3))} if like else {"voxel_size": 1}
        )
        with pytest.raises(
            InputError,
            match=f"larger than the resolution of {resolution:g} Å.*nothing.*would be left",
        ):
            DensityMap.simulate(chain_of("C", "O", "S"), self.POSITIONS, resolution, **grid)

    @pytest.mark.parametrize(
        "arguments",
        [
            {"resolution": 0.01},
            {"resolution": 0.06, "voxel_size": 0.06, "margin": 0},
            {"resolution": 3, "voxel_size": 1e-9},
            {"resolution": 3, "margin": 1e30},
            {"resolution": 1e12, "voxel_size": 1},
        ],
    )
    def test_more_voxels_than_memory_should_hold_are_refused_before_any_work(self, monkeypatch, arguments):
        monkeypatch.setattr(ModelDensity, "on_grid", None)
        tracemalloc.start()
        try:
            with pytest.raises(InputError, match="more than fits in memory"):
                DensityMap.simulate(chain_of("C", "O", "S"), self.POSITIONS * 10, **arguments)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 1e6

    def test_b_factors_of_every_atom_and_virtual_sites(self):
        topology = chain_of("C", None, "C")
        positions = np.array([[0.0, 0, 0], [4, 0, 0], [8, 0, 0]])
        density_map = DensityMap.simulate(topology, positions, 2.0, 0.5, b_factors=[10, 10, 40])
        sharp, nothing, blurred = density_map.value_at(positions)
        assert sharp > 1.5 * blurred and abs(nothing) < 0.2 * blurred

    @pytest.mark.parametrize(
        ("arguments", "part"),
        [
            ({"resolution": 0}, "resolution"),
            ({"resolution": np.nan}, "resolution"),
            ({"voxel_size": -1}, "voxel_size"),
            ({"scattering": "neutron"}, "scattering"),
            ({"b_factors": [1, 2]}, "b_factors"),
            ({"b_factors": -5}, "b_factors"),
            ({"noise": -1}, "noise"),
            ({"margin": np.nan}, "margin"),
            (
                {"positions": np.zeros((2, 3))},
                "positions must be one for each of the 3 atoms of the topology, found 2:",
            ),
            ({"positions": np.full((3, 3), np.nan)}, "NaN"),
            ({"positions": np.diag([0, 1e5, 1e5])}, "coordinates"),
            ({"topology": chain_of("C", "O", "Es")}, "form factor"),
            ({"topology": chain_of(None, None, None)}, "no atom with an element"),
            ({"like": DensityMap(np.zeros((2, 2, 2)), np.eye(3), np.zeros(3))}, "like"),
        ],
    )
    def test_errors(self, arguments, part):
        usual = {
            "topology": chain_of("C", "O", "S"),
            "positions": self.POSITIONS,
            "resolution": 3,
            "voxel_size": 1,
        }
        with pytest.raises(InputError, match=part):
            DensityMap.simulate(**(usual | arguments))


def test_pickled_it_has_the_same_density_and_no_topology():
    model = ModelDensity(
        chain_of("C", "O", "", "S"), 2.0, b_factors=[20.0, 30.0, 0.0, 40.0], occupancies=[1, 0.5, 1, 1]
    )
    positions = np.array([[0.1, 0.2, 0.3], [1.4, 0.0, 0.2], [0.0, 0.0, 0.0], [2.0, 1.7, -0.4]])
    sent = pickle.dumps(model)
    assert b"openmm.app" not in sent
    (start, density), (start_sent, density_sent) = (
        each.on_grid(positions, np.eye(3) * 0.7, np.zeros(3)) for each in (model, pickle.loads(sent))
    )
    assert np.array_equal(start, start_sent) and np.array_equal(density, density_sent) and density.max() > 0.1
