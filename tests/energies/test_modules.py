import io
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from openmm_density.energies.measures import MEASURES
from openmm_density.energies.modules import (
    DensityEnergy,
    Grid,
    MapPotentialEnergy,
    SimilarityEnergy,
    WholeMolecules,
)
from openmm_density.kernels import density as density_kernel
from openmm_density.kernels.density import reference
from openmm_density.kernels.interpolation import reference as interpolation_reference


def name_of(measure):
    return "about-mean" if measure.about_mean else measure.name


COMPARED = {name_of(measure): measure for measure in MEASURES if not measure.is_potential}
(POTENTIAL,) = (measure for measure in MEASURES if measure.is_potential)
N_PARTICLES = 14
ATOMS = torch.tensor([0, 2, 3, 5, 8, 9, 12])


def random(*size, seed=0):
    return torch.rand(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


MATRIX = torch.tensor([[0.1, 0.02, -0.01], [0.0, 0.09, 0.03], [0.0, 0.0, 0.11]], dtype=torch.float64)
ORIGIN = torch.tensor([-0.4, 1.7, 0.05], dtype=torch.float64)
SHAPE = (9, 11, 10)
POSITIONS = ORIGIN + (random(N_PARTICLES, 3) * torch.tensor([9.0, 10.0, 8.0])) @ MATRIX.T
AMPLITUDES = (random(len(ATOMS), 2, seed=1) + 0.5).float()
EXPONENTS = (random(len(ATOMS), 2, seed=2) * 40 + 40).float()
CUTOFF = 0.35
TOTAL_WEIGHT = 30.0


def target():
    own = density_kernel.density_splat(
        POSITIONS[ATOMS] + 0.02, AMPLITUDES, EXPONENTS, CUTOFF, MATRIX, ORIGIN, list(SHAPE)
    )
    return own + 0.2 * random(*SHAPE, seed=3).float()


def density_energy(measure="cross-correlation", atoms=ATOMS, n_particles=N_PARTICLES, voxels=None):
    voxels, grid = target() if voxels is None else voxels, Grid(MATRIX, ORIGIN, False)
    gaussians = AMPLITUDES, EXPONENTS, CUTOFF
    return DensityEnergy(atoms, n_particles, *gaussians, voxels, grid, COMPARED[measure], TOTAL_WEIGHT)


def map_energy(atoms=ATOMS, n_particles=N_PARTICLES):
    weights, potential = random(len(ATOMS), seed=4).float() + 0.5, random(*SHAPE, seed=5).float()
    return MapPotentialEnergy(atoms, n_particles, weights, potential, Grid(MATRIX, ORIGIN, False), POTENTIAL)


def exact_similarity(name):
    if name == "map-potential":
        module = map_energy()
        return interpolation_reference.map_potential(
            POSITIONS, ATOMS, module.weights, module.potential, module.matrix, module.origin, False
        )
    gaussians, place = (AMPLITUDES, EXPONENTS, CUTOFF), (target(), MATRIX, ORIGIN, False)
    return reference.density_similarity(
        POSITIONS, ATOMS, *gaussians, *place, COMPARED[name].number, TOTAL_WEIGHT
    )


def energy_of(name):
    return map_energy() if name == "map-potential" else density_energy(name)


every_energy = pytest.mark.parametrize("name", [*COMPARED, "map-potential"])


@every_energy
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("shape", [(), (1,)], ids=["as on CPU", "as on CUDA"])
def test_energy_and_forces_are_those_of_the_similarity(name, dtype, shape):
    similarity, gradient = exact_similarity(name)
    measure = POTENTIAL if name == "map-potential" else COMPARED[name]
    k = torch.full(shape, 250.0, dtype=torch.float64)
    energy, forces = energy_of(name)(POSITIONS.to(dtype), k)
    assert energy.shape == ()
    assert energy.dtype == torch.float64
    assert float(energy) == pytest.approx(250 * (measure.max_similarity - float(similarity)), rel=1e-5)
    assert forces.shape == (N_PARTICLES, 3)
    assert forces.dtype == dtype
    assert forces.is_contiguous()
    assert not forces.requires_grad
    # E = k (max S − S), so F = −∂E/∂x = k ∂S/∂x.
    exact = 250 * gradient
    assert float((forces - exact).abs().max()) < 1e-4 * float(exact.abs().max())


@every_energy
def test_the_energy_is_differentiable_in_the_strength_alone(name):
    module = energy_of(name)
    for strength in (250.0, 0.0):
        k = torch.tensor(strength, dtype=torch.float64, requires_grad=True)
        x = POSITIONS.clone().requires_grad_()
        energy, forces = module(x, k)
        energy.backward()
        unit_energy, _ = module(POSITIONS, torch.tensor(1.0))
        assert float(k.grad) == pytest.approx(float(unit_energy), rel=1e-12)
        assert x.grad is None
        if strength == 0.0:
            assert float(energy.detach()) == 0
            assert not forces.any()


@every_energy
def test_the_same_after_scripting_freezing_saving_and_loading(name):
    module = energy_of(name).eval()
    k = torch.tensor(40.0, dtype=torch.float64)
    exact, exact_forces = module(POSITIONS, k)
    scripted = torch.jit.script(module)
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    loaded = torch.jit.load(buffer)
    for candidate in (scripted, loaded, torch.jit.freeze(loaded.eval())):
        # Three times: the executor of TorchScript profiles, then optimises.
        for _ in range(3):
            strength = k.clone().requires_grad_()
            energy, forces = candidate(POSITIONS, strength)
            energy.backward()
            assert float(energy.detach()) == float(exact)
            assert torch.equal(forces, exact_forces)
            assert float(strength.grad) == pytest.approx(float(exact) / 40, rel=1e-12)


@every_energy
def test_positions_of_another_number_are_refused_also_after_freezing(name):
    k, box = torch.tensor(1.0), torch.eye(3, dtype=torch.float64)
    modules = [(energy_of(name), ())]
    if name in ("cross-correlation", "map-potential"):
        modules.append((whole_molecules(name), (box,)))
    for module, boxes in modules:
        frozen = torch.jit.freeze(torch.jit.script(module.eval()))
        for candidate, error in ((module, ValueError), (frozen, torch.jit.Error)):
            for positions in (POSITIONS[:-1], torch.cat([POSITIONS, POSITIONS[:1]])):
                words = f"a topology of 14 atoms, but the System has {len(positions)} particles"
                with pytest.raises(error, match=words):
                    candidate(positions, *boxes, k)


def test_a_target_that_is_not_contiguous_is_understood():
    turned = target().permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert not turned.is_contiguous()
    module = density_energy(voxels=turned)
    k = torch.tensor(1.0)
    assert float(module(POSITIONS, k)[0]) == float(density_energy()(POSITIONS, k)[0])


def test_an_energy_must_say_what_its_similarity_is():
    with pytest.raises(NotImplementedError):
        SimilarityEnergy(ATOMS, N_PARTICLES, 1.0)(POSITIONS, torch.tensor(1.0))


BOXES = {
    "cubic": [[2.4, 0, 0], [0, 2.4, 0], [0, 0, 2.4]],
    "orthorhombic": [[2.0, 0, 0], [0, 2.6, 0], [0, 0, 3.1]],
    "triclinic": [[2.4, 0, 0], [0.7, 2.3, 0], [-0.9, 0.8, 2.5]],
    "most skewed": [[2.4, 0, 0], [1.2, 2.1, 0], [-1.2, 1.05, 2.2]],
    "truncated octahedron": [[2.4, 0, 0], [0.8, 2.2627417, 0], [-0.8, 1.1313708, 1.9595918]],
    "rhombic dodecahedron": [[2.4, 0, 0], [0, 2.4, 0], [1.2, 1.2, 1.6970563]],
    "flat": [[2.4, 0, 0], [1.19, 0.9, 0], [-1.19, 0.44, 0.8]],
}
boxes = pytest.mark.parametrize(
    "box", [torch.tensor(b, dtype=torch.float64) for b in BOXES.values()], ids=BOXES
)
MOLECULES = torch.tensor([0, 0, 0, 1, 1, 2, 2])


def references():
    fitted = POSITIONS[ATOMS]
    return torch.stack([fitted[molecule == MOLECULES].mean(dim=0) for molecule in range(3)])


def whole_molecules(name="cross-correlation"):
    own = dict(atoms=torch.arange(len(ATOMS)), n_particles=len(ATOMS))
    energy = map_energy(**own) if name == "map-potential" else density_energy(name, **own)
    return WholeMolecules(energy, ATOMS, N_PARTICLES, MOLECULES, references())


def test_the_derivative_with_respect_to_the_strength_passes_through_the_wrapping():
    box = torch.tensor(BOXES["cubic"], dtype=torch.float64)
    module = torch.jit.freeze(torch.jit.script(whole_molecules()).eval())
    for _ in range(3):
        k = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
        energy, _ = module(POSITIONS, box, k)
        energy.backward()
        assert float(k.grad) == pytest.approx(1 - float(exact_similarity("cross-correlation")[0]), rel=1e-5)


def test_particles_that_are_not_fitted_are_of_no_matter():
    box = torch.tensor(BOXES["cubic"], dtype=torch.float64)
    k = torch.tensor(3.0)
    exact, exact_forces = whole_molecules()(POSITIONS, box, k)
    others = [i for i in range(N_PARTICLES) if i not in ATOMS.tolist()]
    moved = POSITIONS.clone()
    moved[others] = math.nan
    energy, forces = whole_molecules()(moved, box, k)
    assert float(energy) == float(exact)
    assert not forces[others].any()
    assert torch.equal(forces, exact_forces)


_STEP_OF_MANY_PARTICLES = """
import os
import numpy as np
import torch
from openmm_density.kernels.planarity import pack_planes
from openmm_density.energies.modules import PlanarityEnergy, WholeMolecules
from tests.energies.test_modules import density_energy, map_energy

torch.set_num_threads(2)
many = torch.from_numpy(np.zeros((50_000, 3)))
box = 3.0 * torch.eye(3, dtype=torch.float64)
n = len(many)
energies = [density_energy(n_particles=n), map_energy(n_particles=n)]
energies.append(PlanarityEnergy(pack_planes([([[0, 1, 2, 3]], 0.01)]), n, 2.5))
first = torch.arange(7)
fitted = density_energy(atoms=first, n_particles=7)
energies.append(WholeMolecules(fitted, first, n, first * 0, torch.zeros(1, 3, dtype=torch.float64)))
before = len(os.listdir("/proc/self/task"))
for energy in energies:
    module = torch.jit.freeze(torch.jit.script(energy).eval())
    k = torch.tensor(2.0, dtype=torch.float64)
    _, forces = module(many, box, k) if isinstance(energy, WholeMolecules) else module(many, k)
    assert forces.shape == many.shape
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to count threads")
def test_a_step_wakes_no_threads_of_torch_which_would_spin_on(forked):
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", _STEP_OF_MANY_PARTICLES], cwd=root, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    # The planarity's own threads share its many atoms.
    assert int(ran.stdout.split()[-1]) <= 1
