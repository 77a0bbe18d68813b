import math
import os
import platform
import shutil
import threading
import warnings

import gemmi
import numpy as np
import pytest
import torch
from scipy.special import erf

from openmm_density.energies.form_factors import blurring_b_factor, form_factor_gaussians
from openmm_density.energies.measures import MEASURES as TABLE
from openmm_density.kernels import compilation, density
from openmm_density.kernels.density import (
    CROSS_CORRELATION,
    CROSS_CORRELATION_ABOUT_MEAN,
    INNER_PRODUCT,
    RELATIVE_ENTROPY,
    density_gather,
    density_similarity,
    density_splat,
    reference,
    target_moments,
)

from . import operators
from .children import Child
from .grids import CELLS, cell_steps, finite_or_periodic

MEASURES = {
    "about-mean" if measure.about_mean else measure.name: measure.number
    for measure in TABLE
    if not measure.is_potential
}

measures = pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES.keys())

# Largest deviation from float64 over the largest value: float32 gives about 3e-7. The entropy's gradient goes with
# 1/(ρ + ε), and so magnifies the rounding of a density of nearly zero.
TIGHT = 2e-6

# Relative entropy divides by densities that are near zero: the largest of 15 runs with other seeds was 1.4e-4.
GRADIENT = dict.fromkeys(MEASURES.values(), 5e-6) | {RELATIVE_ENTROPY: 4e-4}


def rotation(seed=0):
    q, _ = torch.linalg.qr(
        torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    )
    return q * torch.linalg.det(q)


GRIDS = CELLS | {
    "rotated": rotation() @ cell_steps(1.0, 0.9, 1.1),
    "permuted": cell_steps(1.0, 0.9, 1.1)[:, [2, 0, 1]],
}

grids = pytest.mark.parametrize("matrix", GRIDS.values(), ids=GRIDS.keys())
similarities = operators.implementations("density", density_similarity)
splats_and_gathers = pytest.mark.parametrize(
    ("splat", "gather"),
    [
        (density_splat, density_gather),
        [operators.in_triton("density", name) for name in ("density_splat", "density_gather")],
    ],
    ids=["C++", "Triton"],
)


class Scene:
    """Atoms in and around a grid; some in awkward places."""

    def __init__(
        self,
        matrix=GRIDS["orthogonal"],
        shape=(14, 17, 19),
        periodic=False,
        gaussians=2,
        cutoff=3.7,
        n_atoms=16,
        dtype=torch.float64,
        seed=0,
        awkward=True,
        reach=0.15,
    ):
        generator = torch.Generator().manual_seed(seed)

        def uniform(*size):
            return torch.rand(*size, generator=generator, dtype=torch.float64)

        self.matrix, self.shape, self.periodic, self.cutoff = matrix, list(shape), periodic, cutoff
        self.origin = torch.tensor([-3.3, 17.1, 0.4], dtype=torch.float64)
        size = torch.tensor(self.shape[::-1], dtype=torch.float64)
        index = (uniform(n_atoms, 3) * (1 + 2 * reach) - reach) * (size - 1)
        if awkward:
            index[0] = torch.tensor([5.0, 6.0, 7.0])  # on a voxel
            index[1] = torch.tensor([0.0, 6.3, 7.4])  # on a face
            index[2] = size - 1  # on the far corner
            index[3] = index[4]  # two in one place
            index[5] = torch.tensor([-2.9, 4.1, 5.2])  # outside, within reach
            index[6] = torch.tensor([400.3, -0.5, 3.0])  # far outside
        self.positions = (self.origin + index @ matrix.T).to(dtype)
        self.amplitudes = (0.5 + uniform(n_atoms, gaussians)).float()
        self.spread((0.35 + 0.5 * uniform(n_atoms, gaussians)).float())
        self.target = torch.randn(self.shape, generator=generator) + 0.3
        self.gradient = torch.randn(self.shape, generator=generator)
        self.atoms = torch.arange(n_atoms)

    def spread(self, exponents):
        """Give the atoms these exponents, and the model the weight that it then has."""
        self.exponents = exponents
        integral = self.amplitudes.double() * (math.pi / exponents.double()) ** 1.5
        self.total_weight = float(integral.sum() / abs(torch.linalg.det(self.matrix)))

    def correlated(self):
        """Let the target resemble the model moved a little: then neither similarity nor forces are small differences."""
        here = self.positions
        self.positions = here + self.cutoff / 8
        density = self.splat()
        self.positions = here
        self.target = self.target + 3 * density / density.std()
        return self

    @property
    def model(self):
        return self.amplitudes, self.exponents, self.cutoff

    @property
    def place(self):
        return self.matrix, self.origin

    def splat(self, where=density_splat):
        return where(self.positions, *self.model, *self.place, self.shape, self.periodic)

    def gather(self, where=density_gather):
        return where(self.gradient, self.positions, *self.model, *self.place, self.periodic)

    def similarity(self, measure, positions=None, where=density_similarity):
        positions, moments = self.positions if positions is None else positions, target_moments(self.target)
        place = *self.place, self.periodic
        return where(
            positions, self.atoms, *self.model, self.target, moments, *place, measure, self.total_weight
        )

    def reference_similarities(self):
        """S and its gradient for every measure, from one density."""
        x = self.positions.detach().double().requires_grad_()
        density = reference.density_splat(x[self.atoms], *self.model, *self.place, self.shape, self.periodic)
        counted = torch.isfinite(self.target)
        results = {}
        for measure in MEASURES.values():
            similarity = reference.similarity(
                density[counted], self.target[counted].double(), measure, self.total_weight
            )
            (gradient,) = torch.autograd.grad(similarity, x, retain_graph=True)
            results[measure] = similarity.detach(), gradient
        return results

    def reference_similarity(self, measure, positions=None):
        positions = self.positions if positions is None else positions
        place = *self.place, self.periodic
        return reference.density_similarity(
            positions, self.atoms, *self.model, self.target, *place, measure, self.total_weight
        )


def images_of(scene):
    cell = scene.matrix.numpy() * np.array(scene.shape[::-1])
    x = scene.positions.double().numpy()
    if not scene.periodic:
        return x[:, None, :]
    fractional = np.linalg.solve(cell, (x - scene.origin.numpy()).T).T % 1.0
    around = np.array(list(np.ndindex(7, 7, 7))) - 3
    return scene.origin.numpy() + (fractional[:, None, :] + around) @ cell.T


def spheres(scene):
    """Yield each atom, and each of its images where periodic, with the voxels it reaches and what leads there from it."""
    nz, ny, nx = scene.shape
    k, j, i = np.meshgrid(np.arange(nz), np.arange(ny), np.arange(nx), indexing="ij")
    voxels = np.stack([i, j, k], axis=-1) @ scene.matrix.numpy().T + scene.origin.numpy()
    for atom, images in enumerate(images_of(scene)):
        for image in images:
            steps = voxels - image
            near = (steps**2).sum(axis=-1) < scene.cutoff**2
            if near.any():
                yield atom, near, steps[near]


def brute_force_density(scene):
    """ρ at every voxel from every atom, and its images where periodic, in NumPy."""
    s_c = scene.cutoff**2
    density = np.zeros(scene.shape)
    for atom, near, steps in spheres(scene):
        a, alpha = scene.amplitudes[atom].double().numpy(), scene.exponents[atom].double().numpy()
        edge = (a * np.exp(-alpha * s_c)).sum()
        slope = (-alpha * a * np.exp(-alpha * s_c)).sum()
        s = (steps**2).sum(axis=-1)
        f = (a * np.exp(-alpha * s[:, None])).sum(axis=1)
        density[near] += f - edge - slope * (s - s_c)
    return density


def uncancelled(scene):
    """Largest sums of |g ∂ρ/∂x|, |g ∂ρ/∂A| and |g ∂ρ/∂α| of an atom: rounding goes with them, however much cancels."""
    by_position = np.zeros((len(scene.positions), 3))
    by_amplitude, by_exponent = np.zeros((2, *scene.amplitudes.shape))
    for atom, near, steps in spheres(scene):
        a, alpha = scene.amplitudes[atom].double().numpy(), scene.exponents[atom].double().numpy()
        s = (steps**2).sum(axis=-1)[:, None]
        g, f = np.abs(scene.gradient.numpy()[near]), np.exp(-alpha * s)
        slope = (alpha * a * (f - np.exp(-alpha * scene.cutoff**2))).sum(axis=1)
        by_position[atom] += 2 * g * slope @ np.abs(steps)
        by_amplitude[atom] += g @ f
        by_exponent[atom] += g @ (a * s * f)
    return by_position.max(), by_amplitude.max(), by_exponent.max()


def check_gathered(scene, gather=density_gather):
    """Compare what is gathered with the reference, in proportion to what it is the sum of."""
    exact = scene.gather(reference.density_gather)
    for found, expected, scale in zip(scene.gather(gather), exact, uncancelled(scene)):
        assert deviation(found, expected, scale) < TIGHT


def written_out_similarity(density, target, measure, total_weight):
    """The table of measures in NumPy, over the voxels whose target is not NaN; least squares by solving them."""
    counted = ~np.isnan(target)
    rho, t = density[counted], target[counted].astype(np.float64)
    if measure == CROSS_CORRELATION:
        return (rho * t).sum() / math.sqrt((rho**2).sum() * (t**2).sum())
    if measure == CROSS_CORRELATION_ABOUT_MEAN:
        return np.corrcoef(rho, t)[0, 1]
    if measure == INNER_PRODUCT:
        return (rho / total_weight * t / t.std()).sum()
    if measure == RELATIVE_ENTROPY:
        rho, t = rho[t > 0], t[t > 0]
        share = t / t.sum()
        return -(share * np.log(share / (rho / total_weight + 1e-3 * share.mean()))).sum()
    (a, b), *_ = np.linalg.lstsq(np.stack([rho, np.ones_like(rho)], axis=1), t, rcond=None)
    if a < 0:
        a, b = 0.0, t.mean()
    return 1 - ((t - a * rho - b) ** 2).sum() / ((t - t.mean()) ** 2).sum()


def deviation(found, exact, scale=None):
    """Largest deviation over the largest exact value, or another scale."""
    scale = float(exact.abs().max()) if scale is None else scale
    assert scale > 0
    return float((found.double() - exact.double()).abs().max()) / scale


def central_differences(energy, x, h):
    """d energy/dx for every element of x by central differences."""
    result = torch.zeros_like(x)
    for i in range(x.numel()):
        step = torch.zeros_like(x)
        step.view(-1)[i] = h
        result.view(-1)[i] = (float(energy(x + step)) - float(energy(x - step))) / (2 * h)
    return result


@grids
@finite_or_periodic
def test_reference_density_is_the_sum_over_all_atoms_and_images(matrix, periodic):
    scene = Scene(matrix, shape=(6, 9, 7), periodic=periodic, n_atoms=12, cutoff=3.7)
    exact = torch.from_numpy(brute_force_density(scene))
    assert deviation(scene.splat(reference.density_splat), exact) < 1e-12


@grids
@finite_or_periodic
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_matches_the_reference(matrix, periodic, dtype):
    scene = Scene(matrix, periodic=periodic, dtype=dtype).correlated()
    density = scene.splat()
    assert density.dtype == torch.float32
    assert deviation(density, scene.splat(reference.density_splat)) < TIGHT
    for found, exact in zip(scene.gather(), scene.gather(reference.density_gather)):
        assert found.dtype == (dtype if found.shape[1] == 3 else torch.float32)
        assert deviation(found, exact) < TIGHT
    for measure, (exact, exact_gradient) in scene.reference_similarities().items():
        similarity, gradient = scene.similarity(measure)
        assert similarity.dtype == torch.float64
        assert similarity.shape == ()
        assert gradient.dtype == dtype
        assert gradient.is_contiguous()
        assert float(similarity) == pytest.approx(float(exact), rel=TIGHT, abs=1e-7)
        assert deviation(gradient, exact_gradient) < GRADIENT[measure]


@pytest.mark.parametrize("gaussians", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("cutoff", [1.6, 4.0, 11.0], ids=["few bricks", "many bricks", "more than are held"])
@pytest.mark.parametrize("skewed", [False, True], ids=["orthogonal", "skewed"])
def test_every_number_of_gaussians_and_of_bricks_along_x(gaussians, cutoff, skewed):
    steps = cell_steps(0.3, 1.1, 1.2, *((80.0, 95.0, 105.0) if skewed else ()))
    scene = Scene(steps, shape=(7, 8, 45), gaussians=gaussians, cutoff=cutoff, n_atoms=7)
    scene.spread(scene.exponents * (6 / cutoff))
    scene.correlated()
    assert deviation(scene.splat(), scene.splat(reference.density_splat)) < TIGHT
    check_gathered(scene)
    for measure, (exact, exact_gradient) in scene.reference_similarities().items():
        similarity, gradient = scene.similarity(measure)
        assert float(similarity) == pytest.approx(float(exact), rel=TIGHT, abs=1e-7)
        assert deviation(gradient, exact_gradient) < GRADIENT[measure]


@grids
def test_beside_a_voxel_no_digits_of_the_distance_are_lost(matrix):
    scene = Scene(matrix, n_atoms=8, awkward=False, cutoff=0.6)
    scene.exponents = scene.exponents * 10
    generator = torch.Generator().manual_seed(3)
    index = torch.randint(2, 13, (8, 3), generator=generator)
    beside = 1e-4 * torch.rand(8, 3, generator=generator, dtype=torch.float64)
    scene.positions = scene.origin + (index + beside) @ matrix.T
    # The only voxel in an atom's sphere pulls with a force that is proportional to the distance.
    assert deviation(scene.gather()[0], scene.gather(reference.density_gather)[0]) < TIGHT


@grids
def test_images_of_an_atom_larger_than_the_cell(matrix):
    scene = Scene(matrix, shape=(4, 5, 3), periodic=True, cutoff=6.5, n_atoms=8, awkward=False, reach=3.0)
    exact = torch.from_numpy(brute_force_density(scene))
    assert deviation(scene.splat(reference.density_splat), exact) < 1e-12
    assert deviation(scene.splat(), exact) < TIGHT
    for found, exact in zip(scene.gather(), scene.gather(reference.density_gather)):
        assert deviation(found, exact) < TIGHT


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 9, 2), (2, 1, 40)])
@finite_or_periodic
@splats_and_gathers
def test_grids_of_a_single_layer(splat, gather, shape, periodic):
    scene = Scene(GRIDS["triclinic"], shape=shape, periodic=periodic, n_atoms=8, awkward=False, cutoff=1.9)
    scene.positions = scene.positions + torch.rand(8, 3, generator=torch.Generator().manual_seed(1))
    exact = torch.from_numpy(brute_force_density(scene))
    assert deviation(scene.splat(splat), exact) < 2 * TIGHT
    check_gathered(scene, gather)


@grids
def test_a_thousand_cells_away_is_the_same_as_here(matrix):
    scene = Scene(matrix, periodic=True)
    cell = matrix * torch.tensor(scene.shape[::-1])
    here, here_gradient = scene.similarity(CROSS_CORRELATION)
    density = scene.splat()
    scene.positions = scene.positions + cell @ torch.tensor([1000.0, -1000.0, 1000.0], dtype=torch.float64)
    there, there_gradient = scene.similarity(CROSS_CORRELATION)
    assert float(there) == pytest.approx(float(here), rel=1e-7)
    assert deviation(there_gradient, here_gradient) < TIGHT
    assert deviation(scene.splat(), density) < TIGHT
    # In float32 a position has lost digits, but nothing more may be lost.
    scene.positions = scene.positions.float()
    assert deviation(scene.splat(), scene.splat(reference.density_splat)) < TIGHT


@measures
@pytest.mark.parametrize("matrix", [GRIDS["orthogonal"], GRIDS["triclinic"]], ids=["orthogonal", "triclinic"])
def test_the_similarity_is_what_the_table_says(measure, matrix):
    for target_offset in (0.3, -0.5):
        scene = Scene(matrix, shape=(8, 9, 11), n_atoms=10)
        scene.target = scene.splat() * 0.5 + torch.randn(scene.shape) + target_offset
        scene.target[2:4, :5] = math.nan
        exact = written_out_similarity(
            brute_force_density(scene), scene.target.numpy(), measure, scene.total_weight
        )
        assert float(scene.reference_similarity(measure)[0]) == pytest.approx(exact, rel=1e-10)
        similarity, gradient = scene.similarity(measure)
        assert float(similarity) == pytest.approx(exact, rel=TIGHT, abs=1e-7)
        assert deviation(gradient, scene.reference_similarity(measure)[1]) < GRADIENT[measure]


@finite_or_periodic
@pytest.mark.parametrize("matrix", [GRIDS["orthogonal"], GRIDS["triclinic"]], ids=["orthogonal", "triclinic"])
def test_gradients_are_the_derivatives_of_the_energy(periodic, matrix):
    scene = Scene(matrix, shape=(9, 8, 10), periodic=periodic, n_atoms=8).correlated()
    t = scene.target.double()

    def similarities(positions):
        density = reference.density_splat(positions, *scene.model, *scene.place, scene.shape, periodic)
        values = [reference.similarity(density, t, m, scene.total_weight) for m in MEASURES.values()]
        return torch.stack(values)

    h = 1e-6  # so short that it does not matter where a voxel enters a sphere on the way
    exact = torch.zeros(len(MEASURES), *scene.positions.shape, dtype=torch.float64)
    for atom, axis in np.ndindex(*scene.positions.shape):
        step = torch.zeros_like(scene.positions)
        step[atom, axis] = h
        difference = similarities(scene.positions + step) - similarities(scene.positions - step)
        exact[:, atom, axis] = difference / (2 * h)
    for measure, (_, gradient) in scene.reference_similarities().items():
        assert deviation(gradient, exact[measure]) < 1e-6
        assert deviation(scene.reference_similarity(measure)[1], exact[measure]) < 1e-6
        assert deviation(scene.similarity(measure)[1], exact[measure]) < max(GRADIENT[measure], 1e-5)


@grids
def test_gradients_with_respect_to_amplitudes_and_exponents(matrix):
    scene = Scene(matrix, shape=(9, 8, 10), n_atoms=7, gaussians=2)
    amplitudes, exponents = scene.amplitudes.double(), scene.exponents.double()

    def energy(a, alpha):
        density = reference.density_splat(
            scene.positions, a, alpha, scene.cutoff, *scene.place, scene.shape, False
        )
        return (scene.gradient.double() * density).sum()

    by_amplitude = central_differences(lambda a: energy(a, exponents), amplitudes, 1e-3)
    by_exponent = central_differences(lambda alpha: energy(amplitudes, alpha), exponents, 1e-5)
    _, found_a, found_alpha = scene.gather(reference.density_gather)
    assert deviation(found_a, by_amplitude) < 1e-8
    assert deviation(found_alpha, by_exponent) < 1e-6
    _, found_a, found_alpha = scene.gather()
    assert deviation(found_a, by_amplitude) < TIGHT
    assert deviation(found_alpha, by_exponent) < TIGHT


def closed_form_integral(amplitude, exponent, cutoff):
    """∫ρ over the sphere: of the Gaussian, less the constant and the linear term in s."""
    edge = amplitude * math.exp(-exponent * cutoff**2)
    gaussian = amplitude * (math.pi / exponent) ** 1.5 * erf(math.sqrt(exponent) * cutoff)
    gaussian -= 2 * math.pi * cutoff / exponent * edge
    return gaussian - edge * 4 * math.pi * cutoff**3 / 3 - exponent * edge * 8 * math.pi * cutoff**5 / 15


@pytest.mark.parametrize(
    ("cutoff_in_sigma", "lost"), [(3.0, 0.2527), (4.0, 0.0252), (5.0, 0.000759), (7.0, 0)]
)
def test_total_density_is_the_closed_form_integral(cutoff_in_sigma, lost):
    sigma = 1.5
    cutoff = cutoff_in_sigma * sigma
    generator = torch.Generator().manual_seed(3)
    for name in ("orthogonal", "mirrored", "triclinic", "rotated"):
        scene = Scene(
            GRIDS[name],
            shape=(22, 24, 23),
            periodic=True,
            gaussians=1,
            n_atoms=5,
            cutoff=cutoff,
            awkward=False,
        )
        scene.exponents = torch.full((5, 1), 0.5 / sigma**2)
        scene.amplitudes = torch.rand(5, 1, generator=generator) + 0.5
        volume = float(torch.linalg.det(scene.matrix).abs())
        total = float(scene.splat().double().sum()) * volume
        exponent = 0.5 / sigma**2
        exact = sum(closed_form_integral(float(a), exponent, cutoff) for a in scene.amplitudes[:, 0])
        assert total == pytest.approx(exact, rel=2e-4)
        complete = float(scene.amplitudes.sum()) * (math.pi / exponent) ** 1.5
        assert 1 - exact / complete == pytest.approx(lost, rel=0.05, abs=2e-6)


@pytest.mark.parametrize("table", ["electron", "xray"])
@pytest.mark.parametrize(
    "cell", [(20, 22, 24, 90, 90, 90), (20, 22, 24, 75, 100, 110), (20, 22, 20, 90, 130, 90)]
)
def test_density_is_gemmis(table, cell):
    resolution = 3.0
    generator = np.random.default_rng(0)
    elements = ["C", "N", "O", "S", "P", "Fe", "Zn", "Mg"]
    b_factors, occupancies = generator.uniform(10, 60, 8), generator.uniform(0.2, 1, 8)
    unit_cell = gemmi.UnitCell(*cell)
    structure = gemmi.Structure()
    structure.cell = unit_cell
    structure.spacegroup_hm = "P 1"
    model, chain, residue = gemmi.Model(1), gemmi.Chain("A"), gemmi.Residue()
    positions = []
    for element, b, occupancy in zip(elements, b_factors, occupancies):
        atom = gemmi.Atom()
        atom.element = gemmi.Element(element)
        atom.pos = unit_cell.orthogonalize(gemmi.Fractional(*generator.uniform(0, 1, 3)))
        atom.b_iso = b + blurring_b_factor(resolution)
        atom.occ = occupancy
        positions.append(atom.pos.tolist())
        residue.add_atom(atom)
    chain.add_residue(residue)
    model.add_chain(chain)
    structure.add_model(model)
    calculator = {"electron": gemmi.DensityCalculatorE, "xray": gemmi.DensityCalculatorX}[table]()
    calculator.d_min = 1.6
    calculator.rate = 1.0
    calculator.cutoff = 1e-9
    calculator.grid.setup_from(structure)
    calculator.put_model_density_on_grid(structure[0])
    exact = torch.from_numpy(np.array(calculator.grid.array).T.copy())
    nz, ny, nx = exact.shape
    amplitudes, exponents = form_factor_gaussians(
        elements, table, torch.from_numpy(b_factors), torch.from_numpy(occupancies), resolution
    )
    matrix = torch.from_numpy(np.array(unit_cell.orth.mat.tolist()) / (nx, ny, nz))
    found = density_splat(
        torch.tensor(positions, dtype=torch.float64),
        amplitudes.float(),
        exponents.float(),
        8.0,
        matrix,
        torch.zeros(3, dtype=torch.float64),
        [nz, ny, nx],
        True,
    )
    assert deviation(found, exact) < 1e-3


@measures
def test_the_energy_is_continuously_differentiable_at_the_cutoff(measure):
    """Along a line on which a voxel enters an atom's sphere: no jump of energy, nor of its slope."""
    scene = Scene(n_atoms=4, gaussians=1, cutoff=2.5, awkward=False)
    # 1.8 σ … a hard cut-off would leave a step of 20% of the peak.
    scene.spread(torch.full_like(scene.exponents, 0.5))
    voxel = torch.tensor([9.0, 8.0, 7.0], dtype=torch.float64)
    direction = torch.tensor([0.6, 0.0, 0.8], dtype=torch.float64)
    crossing = scene.origin + scene.matrix @ voxel - scene.cutoff * direction
    # No other atom reaches that voxel, and noise pulls less than it does.
    others = torch.tensor([[4.2, 4.3, 4.1], [4.4, 12.3, 9.2], [14.3, 12.1, 4.4]], dtype=torch.float64)
    scene.positions = torch.vstack([crossing, scene.origin + others @ scene.matrix.T])
    scene.target = 0.1 * scene.target.abs() + scene.splat()
    scene.target[7, 8, 9] = 40.0

    def at(step):
        positions = scene.positions.clone()
        positions[0] = crossing + step * direction
        return positions

    def largest_steps(h):
        pairs = [scene.reference_similarity(measure, at(i * h)) for i in range(-2, 3)]
        energies, slopes = [float(s) for s, _ in pairs], [float(g[0] @ direction) for _, g in pairs]
        return np.abs(np.diff(energies)).max(), np.abs(np.diff(slopes)).max(), slopes

    assert any(
        float(scene.reference_similarity(measure, at(x))[1][0] @ direction) > 0 for x in (0.5, 1.0, 1.5)
    )
    # What changes in proportion to the step has no jump.
    coarse_energy, coarse_slope, slopes = largest_steps(1e-4)
    fine_energy, fine_slope, _ = largest_steps(1e-5)
    assert fine_energy < 0.15 * coarse_energy
    assert fine_slope < 0.15 * coarse_slope
    kernel = [float(scene.similarity(measure, at(i * 1e-4))[1][0] @ direction) for i in range(-2, 3)]
    # The slope changes fast here, that of the entropy most: as much as within the spacing of distances in float32.
    rounding = coarse_slope / 1e-4 * float(np.spacing(np.float32(scene.cutoff)))
    largest = float(scene.similarity(measure)[1].abs().max())
    np.testing.assert_allclose(kernel, slopes, rtol=0, atol=rounding + GRADIENT[measure] * largest)


def assert_same(function, found, expected):
    """To the last bit on CPUs, where atoms are added up in their order; there are more at once on a GPU."""
    if function is density_similarity:
        assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])
    assert float(found[0]) == pytest.approx(float(expected[0]), rel=TIGHT)
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=5e-6 * float(expected[1].abs().max()))


@measures
@similarities
def test_nan_and_infinite_coordinates_leave_the_others_alone(function, measure):
    for periodic in (False, True):
        scene = Scene(shape=(5, 9, 7), periodic=periodic, n_atoms=20, cutoff=1.8)
        lost = [2, 9, 19]
        kept = [i for i in range(20) if i not in lost]
        broken = scene.positions.clone()
        broken[2, 1], broken[9, 0], broken[19] = math.nan, math.inf, -math.inf
        similarity, gradient = scene.similarity(measure, broken, function)
        reference_similarity, reference_gradient = scene.reference_similarity(measure, broken)
        assert torch.equal(gradient[lost], torch.zeros(3, 3, dtype=torch.float64))
        assert not reference_gradient[lost].any()
        scene.amplitudes, scene.exponents = scene.amplitudes[kept], scene.exponents[kept]
        scene.atoms = scene.atoms[kept]
        exact, exact_gradient = scene.similarity(measure, where=function)
        assert_same(function, (similarity, gradient[kept]), (exact, exact_gradient[kept]))
        assert float(reference_similarity) == pytest.approx(float(similarity), rel=TIGHT, abs=1e-7)


def test_nan_coordinates_in_splat_and_gather():
    scene = Scene(n_atoms=20)
    scene.positions[4, 2], scene.positions[7, 0] = math.nan, math.inf
    assert scene.splat().isfinite().all()
    for found, exact in zip(scene.gather(), scene.gather(reference.density_gather)):
        assert not found[[4, 7]].any()
        assert deviation(found, exact) < TIGHT


def expected_without_density(scene, measure):
    if measure != RELATIVE_ENTROPY:
        return 0.0
    t = scene.target[scene.target > 0].double()
    share = t / t.sum()
    return -float((share * (share / (1e-3 * share.mean())).log()).sum())


UNUSABLE_TARGETS = {
    "constant": (0.3, [m for m in MEASURES.values() if m not in (CROSS_CORRELATION, RELATIVE_ENTROPY)]),
    "zero": (0.0, list(MEASURES.values())),
    "negative": (-0.7, [m for m in MEASURES.values() if m != CROSS_CORRELATION]),
    "masked whole": (math.nan, list(MEASURES.values())),
}


"""A number for all voxels of a target, and the measures for which such a target has no similarity."""

unusable_targets = pytest.mark.parametrize(
    ("value", "measure"),
    [
        pytest.param(value, measure, id=f"{name}-{number}")
        for name, (value, of_measures) in UNUSABLE_TARGETS.items()
        for number, measure in MEASURES.items()
        if measure in of_measures
    ],
)


@unusable_targets
@similarities
def test_a_target_without_contrast_has_no_similarity_and_no_force(function, value, measure):
    scene = Scene(shape=(4, 5, 7), n_atoms=4, awkward=False, cutoff=1.8)
    scene.target = torch.full_like(scene.target, value)
    found = scene.similarity(measure, where=function)
    for similarity, gradient in (found, scene.reference_similarity(measure)):
        assert float(similarity) == 0.0
        assert not gradient.any()


@measures
@pytest.mark.parametrize("where", ["outside", "far outside", "nan", "no atoms"])
@similarities
def test_without_density_in_the_map_there_is_no_force_and_no_nan(function, measure, where):
    scene = Scene(shape=(5, 9, 7), n_atoms=6, awkward=False, cutoff=1.8)
    scene.positions = {
        "outside": scene.positions + 60.0,
        "far outside": scene.positions + 1e30,
        "nan": torch.full_like(scene.positions, math.nan),
        "no atoms": scene.positions,
    }[where]
    if where == "no atoms":
        scene.atoms = torch.zeros(0, dtype=torch.int64)
        scene.amplitudes, scene.exponents = torch.zeros(0, 2), torch.zeros(0, 2)
    found = scene.similarity(measure, where=function)
    for similarity, gradient in (found, scene.reference_similarity(measure)):
        assert float(similarity) == pytest.approx(expected_without_density(scene, measure), abs=1e-7)
        assert torch.equal(gradient, torch.zeros(6, 3, dtype=torch.float64))


@splats_and_gathers
def test_no_atoms_make_an_empty_grid(splat, gather):
    scene = Scene()
    empty = torch.zeros(0, 3), torch.zeros(0, 2), torch.zeros(0, 2)
    assert torch.equal(splat(*empty, 3.0, *scene.place, scene.shape, False), torch.zeros(scene.shape))
    derivatives = gather(scene.gradient, *empty, 3.0, *scene.place, False)
    assert [tuple(d.shape) for d in derivatives] == [(0, 3), (0, 2), (0, 2)]


@similarities
def test_only_the_selected_atoms_count_and_feel_a_force(function):
    small = dict(shape=(5, 9, 7), n_atoms=20, cutoff=1.8)
    scene = Scene(**small)
    chosen = torch.tensor([17, 3, 11, 4])
    others = [i for i in range(20) if i not in chosen.tolist()]
    scene.atoms = chosen
    scene.amplitudes, scene.exponents = scene.amplitudes[chosen], scene.exponents[chosen]
    similarity, gradient = scene.similarity(CROSS_CORRELATION, where=function)
    assert gradient.shape == (20, 3)
    assert not gradient[others].any()
    alone = Scene(**small)
    alone.positions, alone.atoms = alone.positions[chosen], torch.arange(4)
    alone.amplitudes, alone.exponents = scene.amplitudes, scene.exponents
    exact = alone.similarity(CROSS_CORRELATION, where=function)
    assert_same(function, (similarity, gradient[chosen]), exact)


@pytest.mark.parametrize("matrix", [GRIDS["orthogonal"], GRIDS["triclinic"]], ids=["orthogonal", "triclinic"])
def test_what_an_earlier_call_left_behind_is_not_read(matrix):
    def results():
        small = Scene(matrix, shape=(5, 6, 7), n_atoms=8, seed=4)
        return [small.splat(), *small.gather(), *[y for m in MEASURES.values() for y in small.similarity(m)]]

    before = results()
    poisoned = Scene(matrix, shape=(40, 50, 60), n_atoms=1500, gaussians=5, cutoff=4.0, periodic=True)
    poisoned.amplitudes[:] = math.nan
    poisoned.exponents[::2] = math.nan
    poisoned.gradient[:] = math.nan
    poisoned.target[::2] = math.nan
    assert poisoned.splat().isnan().any()
    assert poisoned.gather()[0].isnan().any()
    for measure in MEASURES.values():
        poisoned.similarity(measure)
    for found, exact in zip(results(), before):
        assert torch.equal(found, exact)


@pytest.mark.parametrize("matrix", [GRIDS["orthogonal"], GRIDS["triclinic"]], ids=["orthogonal", "triclinic"])
@finite_or_periodic
def test_the_same_bits_for_every_number_of_threads_and_every_time(matrix, periodic):
    scene = Scene(
        matrix, shape=(23, 37, 31), n_atoms=4600, periodic=periodic, cutoff=2.2
    )  # two chunks of atoms

    def results():
        return [
            scene.splat(),
            *scene.gather(),
            *[y for measure in MEASURES.values() for y in scene.similarity(measure)],
        ]

    torch.set_num_threads(1)
    exact = results()
    for threads in (1, 2, 3, 8, 2):
        torch.set_num_threads(threads)
        for found, expected in zip(results(), exact):
            assert torch.equal(found, expected)


def test_two_python_threads_at_once_do_not_disturb_each_other():
    scenes = [
        Scene(GRIDS["orthogonal"], shape=(30, 31, 32), n_atoms=700, seed=1),
        Scene(GRIDS["triclinic"], shape=(19, 40, 22), n_atoms=400, gaussians=3, seed=2, periodic=True),
    ]
    sequential = [[scene.similarity(measure) for measure in MEASURES.values()] for scene in scenes]
    start = threading.Barrier(2)
    found = [[], []]

    def work(which):
        start.wait()
        for _ in range(8):
            found[which].append([scenes[which].similarity(measure) for measure in MEASURES.values()])

    threads = [threading.Thread(target=work, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for which in range(2):
        assert len(found[which]) == 8
        for repetition in found[which]:
            for (s, g), (exact_s, exact_g) in zip(repetition, sequential[which]):
                assert torch.equal(s, exact_s)
                assert torch.equal(g, exact_g)


@grids
@finite_or_periodic
def test_autograd_through_the_density(matrix, periodic):
    scene = Scene(matrix, periodic=periodic)
    leaves = [x.clone().requires_grad_() for x in (scene.positions, scene.amplitudes, scene.exponents)]
    density = density_splat(*leaves, scene.cutoff, *scene.place, scene.shape, periodic)
    ((density - scene.gradient) ** 2).sum().backward()
    exact_leaves = [leaf.detach().double().requires_grad_() for leaf in leaves]
    exact = reference.density_splat(*exact_leaves, scene.cutoff, *scene.place, scene.shape, periodic)
    ((exact - scene.gradient.double()) ** 2).sum().backward()
    for leaf, exact_leaf in zip(leaves, exact_leaves):
        assert leaf.grad.dtype == leaf.dtype
        assert deviation(leaf.grad, exact_leaf.grad) < 2 * TIGHT


def test_arguments_that_are_not_contiguous_are_understood():
    scene = Scene()
    exact = scene.similarity(CROSS_CORRELATION)
    density = scene.splat()
    scene.positions = scene.positions.T.contiguous().T
    scene.amplitudes = scene.amplitudes.T.contiguous().T
    scene.matrix = scene.matrix.T.contiguous().T
    assert not scene.positions.is_contiguous()
    found = scene.similarity(CROSS_CORRELATION)
    assert torch.equal(found[0], exact[0])
    assert torch.equal(found[1], exact[1])
    assert torch.equal(scene.splat(), density)
    gathered = scene.gather()
    scene.gradient = scene.gradient.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert torch.equal(scene.gather()[0], gathered[0])


WRONG = {
    "positions of integers": dict(positions=torch.zeros(16, 3, dtype=torch.int64)),
    "positions of half precision": dict(positions=torch.zeros(16, 3, dtype=torch.float16)),
    "positions in two dimensions": dict(positions=torch.zeros(16, 2)),
    "flat positions": dict(positions=torch.zeros(48)),
    "amplitudes in double": dict(amplitudes=torch.zeros(16, 2, dtype=torch.float64)),
    "amplitudes of another number of atoms": dict(amplitudes=torch.zeros(15, 2)),
    "exponents of another shape": dict(exponents=torch.ones(16, 3)),
    "six Gaussians": dict(amplitudes=torch.ones(16, 6), exponents=torch.ones(16, 6)),
    "no Gaussian": dict(amplitudes=torch.ones(16, 0), exponents=torch.ones(16, 0)),
    "a cut-off of zero": dict(cutoff=0.0),
    "a negative cut-off": dict(cutoff=-1.0),
    "an infinite cut-off": dict(cutoff=math.inf),
    "a cut-off that is NaN": dict(cutoff=math.nan),
    "a matrix in single precision": dict(matrix=torch.eye(3)),
    "a matrix of another shape": dict(matrix=torch.eye(4, dtype=torch.float64)),
    "steps in one plane": dict(matrix=torch.ones(3, 3, dtype=torch.float64)),
    "a matrix that is NaN": dict(matrix=torch.full((3, 3), math.nan, dtype=torch.float64)),
    "an origin in single precision": dict(origin=torch.zeros(3)),
    "an origin of another shape": dict(origin=torch.zeros(2, dtype=torch.float64)),
    "a target in double": dict(target=torch.zeros(14, 17, 19, dtype=torch.float64)),
    "a target that is not contiguous": dict(target=torch.zeros(19, 17, 14).permute(2, 1, 0)),
    "a target of two dimensions": dict(target=torch.zeros(14, 17)),
    "moments of another shape": dict(moments=torch.zeros(5, dtype=torch.float64)),
    "moments in single precision": dict(moments=torch.zeros(6)),
    "atoms in int32": dict(atoms=torch.arange(16, dtype=torch.int32)),
    "an atom that does not exist": dict(atoms=torch.arange(1, 17)),
    "a negative atom": dict(atoms=torch.arange(-1, 15)),
    "an unknown measure": dict(measure=max(MEASURES.values()) + 1),
    "a negative measure": dict(measure=-1),
    "a negative total weight": dict(measure=INNER_PRODUCT, total_weight=-5.0),
    "no total weight": dict(measure=RELATIVE_ENTROPY, total_weight=0.0),
}


@pytest.mark.skipif(
    os.environ.get("CXX") == "/nonexistent", reason="the reference leaves checks to the kernel"
)
@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG.keys())
def test_wrong_arguments_are_refused(change):
    scene = Scene()
    arguments = dict(
        positions=scene.positions,
        atoms=scene.atoms,
        amplitudes=scene.amplitudes,
        exponents=scene.exponents,
        cutoff=scene.cutoff,
        target=scene.target,
        moments=target_moments(scene.target),
        matrix=scene.matrix,
        origin=scene.origin,
        periodic=False,
        measure=CROSS_CORRELATION,
        total_weight=1.0,
    )
    density_similarity(**arguments)
    with pytest.raises((RuntimeError, IndexError)):
        density_similarity(**arguments | change)
    shared = {key: change[key] for key in change if key in ("positions", "amplitudes", "exponents", "cutoff")}
    shared |= {key: change[key] for key in change if key in ("matrix", "origin")}
    if shared:
        model = {key: arguments[key] for key in ("positions", "amplitudes", "exponents", "cutoff")}
        place = {key: arguments[key] for key in ("matrix", "origin")}
        with pytest.raises((RuntimeError, IndexError)):
            density_splat(**model | place | shared, shape=scene.shape)
        with pytest.raises((RuntimeError, IndexError)):
            density_gather(gradient=scene.gradient, **model | place | shared)


def test_a_grid_of_no_voxels_is_refused():
    scene = Scene()
    for shape in ([0, 4, 4], [4, 4], [-1, 4, 4]):
        with pytest.raises(RuntimeError):
            density_splat(scene.positions, *scene.model, *scene.place, shape)


def test_moments_of_a_target():
    target = torch.tensor([[[1.0, -2.0, math.nan], [3.0, 0.0, 0.5]]])
    moments = target_moments(target)
    expected = [5, 2.5, 14.25, 3, 4.5, 3 * math.log(3) + 0.5 * math.log(0.5)]
    torch.testing.assert_close(moments, torch.tensor(expected, dtype=torch.float64))


def computed_from_file(scenes, results):
    """Evaluate every operator on stored scenes: whether the kernel serves, and its flags."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    loaded = compilation.load("density")
    found = []
    for arguments in torch.load(scenes):
        model = [arguments[name] for name in ("amplitudes", "exponents", "cutoff")]
        positions, atoms, target = (arguments[name] for name in ("positions", "atoms", "target"))
        place = arguments["matrix"], arguments["origin"]
        periodic = arguments["periodic"]
        of_scene = [density_splat(positions, *model, *place, list(target.shape), periodic)]
        of_scene += density_gather(torch.nan_to_num(target), positions, *model, *place, periodic)
        for measure in range(5):
            moments, last = target_moments(target), (measure, arguments["total_weight"])
            of_scene += density_similarity(positions, atoms, *model, target, moments, *place, periodic, *last)
        found.append(of_scene)
    torch.save(found, results)
    return loaded, compilation.status()["density"].flags


def awkward_scenes():
    scenes = [
        Scene(GRIDS["orthogonal"], gaussians=1, n_atoms=20),
        Scene(GRIDS["orthogonal"], gaussians=5, n_atoms=20, periodic=True, cutoff=5.5),
        Scene(cell_steps(0.3, 0.8, 1.0), shape=(9, 9, 40), gaussians=2, n_atoms=12, cutoff=4.0),
        Scene(GRIDS["triclinic"], gaussians=3, n_atoms=20, periodic=True),
    ]
    for scene in scenes:
        scene.correlated().target[3, 4:7] = math.nan
    return scenes


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names instruction sets of x86-64")
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_the_narrowest_instruction_set_gives_the_same(tmp_path, kernels_of_other_flags):
    # Without optimisation compiling takes a third of the time; what differs is the width of the vectors. Others come in turn
    # by tests/variations.py.
    narrowest = "-march=x86-64 -O0"
    files = tmp_path / "scenes.pt", tmp_path / "results.pt"
    torch.save([vars(scene) for scene in awkward_scenes()], files[0])
    child = Child(
        computed_from_file, *files, cache=kernels_of_other_flags, OPENMM_DENSITY_CXXFLAGS=narrowest, CXX="g++"
    )
    loaded, flags = child.result()
    assert loaded and set(narrowest.split()) <= set(flags)
    for scene, found in zip(awkward_scenes(), torch.load(files[1])):
        scene.gradient = torch.nan_to_num(scene.target)
        exact = [scene.splat(reference.density_splat), *scene.gather(reference.density_gather)]
        for of_measure in scene.reference_similarities().values():
            exact += of_measure
        assert len(found) == len(exact) == 14
        tolerances = [TIGHT] * 4 + [t for measure in MEASURES.values() for t in (TIGHT, GRADIENT[measure])]
        for f, e, tolerance in zip(found, exact, tolerances):
            assert deviation(f, e) < tolerance


@grids
@pytest.mark.parametrize(
    "implementation", [density_gather, density._reference_gather], ids=["kernel", "pytorch"]
)
def test_positions_alone_can_be_differentiated(matrix, implementation):
    scene = Scene(matrix)
    exact = scene.gather()
    model = (scene.positions, scene.amplitudes, scene.exponents, scene.cutoff, *scene.place, False)
    x, amplitudes, exponents = implementation(scene.gradient, *model, parameters=False)
    assert deviation(x, exact[0]) < TIGHT
    assert amplitudes.shape == exponents.shape == (len(scene.positions), 0)


@measures
def test_an_infinite_voxel_does_not_count(measure):
    scene = Scene()
    scene.target[3, 4, 5] = math.nan
    exact = scene.similarity(measure)
    scene.target[3, 4, 5] = -math.inf
    found = scene.similarity(measure)
    assert torch.equal(found[0], exact[0])
    assert torch.equal(found[1], exact[1])


@pytest.mark.skipif(
    os.environ.get("CXX") == "/nonexistent", reason="the reference leaves checks to the kernel"
)
def test_a_cut_off_beyond_all_reason_is_refused():
    scene = Scene()
    scene.cutoff = 3e10
    with pytest.raises(RuntimeError, match="cutoff reaches over"):
        scene.splat()
