"""PaiNN as a force of OpenMM: against the network in float64, alone and in Contexts."""

import numpy as np
import openmm
import pytest
import torch

from openmm_density.base.errors import InputError
from openmm_density.energies import PaiNN
from openmm_density.energies.forces import backend_problem
from openmm_density.energies.painn import ALL_PAIRS_UP_TO
from openmm_density.energies.painn_network import PaiNNNetwork

from ..contexts import context_of, energy_of, forces_of, system_of

N_ATOMS = 24


def network_of(features=64, n_atoms=N_ATOMS, seed=0, cutoff=0.5):
    torch.manual_seed(seed)
    network = PaiNNNetwork(
        [6, 1, 8][: min(3, n_atoms)] * (n_atoms // 3), features, layers=3, n_radial=20, cutoff=cutoff
    )
    network.mean_energy.fill_(-1.0e5)
    network.element_offsets.copy_(torch.tensor([3.0, -20.0, 5.0], dtype=torch.float64))
    network.scale.fill_(20.0)
    return network


def places_of(n_atoms=N_ATOMS, seed=1):
    """Return atoms on a grid of 1.5 Å, displaced, in nm."""
    generator = torch.Generator().manual_seed(seed)
    side = torch.arange(np.ceil(n_atoms ** (1 / 3)), dtype=torch.float64)
    places = 0.15 * torch.cartesian_prod(side, side, side)[:n_atoms]
    return places + 0.04 * torch.rand(n_atoms, 3, generator=generator, dtype=torch.float64)


def by_autograd(network, positions):
    oracle = PaiNNNetwork.from_tensors(network.tensors(), network.settings).double()
    positions = positions.double().clone().requires_grad_(True)
    energy = oracle(positions)
    return energy.item(), -torch.autograd.grad(energy, positions)[0]


def assert_agree(found, expected):
    """Assert forces to 1e-4 of the largest, and the energy to as much over a bond's length."""
    largest = expected[1].abs().max()
    assert float(found[0]) == pytest.approx(expected[0], abs=1e-5 * float(largest))
    assert (found[1].double() - expected[1]).abs().max() <= 1e-4 * largest


@pytest.mark.parametrize("features", [32, 64, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_energy_and_forces_are_those_of_the_network(features, dtype):
    network, positions = network_of(features), places_of().to(dtype)
    energy, forces = PaiNN(network)(positions)
    assert energy.dtype == torch.float64 and forces.dtype == dtype and forces.is_contiguous()
    assert_agree((energy, forces), by_autograd(network, positions))


def test_large_molecules_have_a_list_of_neighbours():
    n_atoms = ALL_PAIRS_UP_TO + 20
    network, positions = network_of(32, n_atoms, cutoff=0.4), places_of(n_atoms)
    assert_agree(PaiNN(network)(positions), by_autograd(network, positions))


def test_a_committee_is_its_mean_and_other_particles_feel_nothing():
    networks = [network_of(32, seed=seed) for seed in range(3)]
    positions = torch.cat([torch.ones(2, 3, dtype=torch.float64), places_of()])
    painn = PaiNN(networks, particles=range(2, N_ATOMS + 2))
    energy, forces = painn(positions)
    alone = [PaiNN(network)(positions[2:]) for network in networks]
    assert float(energy) == pytest.approx(sum(float(each) for each, _ in alone) / 3)
    torch.testing.assert_close(forces[2:], sum(each for _, each in alone) / 3)
    assert not forces[:2].any()
    strength = torch.tensor(0.5, requires_grad=True)
    half, half_forces = torch.jit.script(painn)(positions, strength)
    half.backward()
    assert half.item() == pytest.approx(energy.item() / 2) and strength.grad.item() == pytest.approx(
        energy.item()
    )
    torch.testing.assert_close(half_forces, forces / 2)


@pytest.mark.parametrize("backend", ["TorchForce", "NativeForce"])
@pytest.mark.parametrize("platform", ["Reference", "CPU"])
def test_in_a_system(backend, platform):
    if backend_problem(backend) is not None:
        pytest.skip(f"{backend}: {backend_problem(backend)}")
    network, positions = network_of(32), torch.cat([places_of(), torch.ones(2, 3, dtype=torch.float64)])
    painn = PaiNN(network, particles=range(N_ATOMS))
    force = painn.create_force(backend=backend, parameter_derivative=True)
    context = context_of(system_of(N_ATOMS + 2, force), 10 * positions.numpy(), platform)
    energy, forces = painn(positions)
    assert energy_of(context) == pytest.approx(float(energy))
    np.testing.assert_allclose(forces_of(context), forces, rtol=1e-5, atol=1e-3)
    context.setParameter("painn_strength", 0.25)
    assert energy_of(context) == pytest.approx(float(energy) / 4)
    slopes = context.getState(parameterDerivatives=True).getEnergyParameterDerivatives()
    assert slopes["painn_strength"] == pytest.approx(float(energy))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (lambda: (torch.nn.Linear(1, 1),), "networks must be a PaiNNNetwork, or several, found Linear: "),
        (
            lambda: (network_of(32, 3), ["C1", "C2", "C3"]),
            "particles must be indices of particles, whole numbers from 0, found str: ",
        ),
        (lambda: ([],), "networks must be one or more networks of the same atoms, found none"),
        (lambda: ([network_of(32), network_of(32, 3)],), "found one of 24 atoms, one of 3 atoms"),
        (
            lambda: (network_of(32, 3), [0, 1]),
            "particles must be 3 different indices, one for each atom.*, found 2",
        ),
        (lambda: (network_of(32, 3), [0, 1, 1]), "found 3, of which 2 are different"),
        (lambda: (network_of(32, 3), [0, 1, -2]), "one for each atom of the network, found -2"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        PaiNN(*arguments())


def test_another_number_of_particles_is_refused():
    with pytest.raises(
        ValueError, match="3 atoms and was given no particles, but the System has 24 particles: give"
    ):
        PaiNN(network_of(32, 3))(places_of())
    with pytest.raises(
        ValueError, match="particles of this PaiNN has the index 24, but the System has 24 particles"
    ):
        PaiNN(network_of(32, 3), [0, 3, N_ATOMS])(places_of())


@pytest.mark.skipif(
    backend_problem("TorchForce") is not None, reason=f"TorchForce: {backend_problem('TorchForce')}"
)
def test_energy_is_kept_as_atoms_pass_the_cutoff():
    """Atoms on springs, whose pairs come and go, for 0.25 ps of Newton's equations; 10 ps are in docs/how_it_works/kernels.md."""
    network, positions = network_of(32, cutoff=0.35), places_of()
    network.scale.fill_(2.0)
    springs = openmm.CustomExternalForce("1000*((x-x0)^2+(y-y0)^2+(z-z0)^2)")
    for name in ("x0", "y0", "z0"):
        springs.addPerParticleParameter(name)
    for atom, place in enumerate(positions.tolist()):
        springs.addParticle(atom, place)
    system = system_of(N_ATOMS, springs, PaiNN(network).create_force(backend="TorchForce"))
    context = context_of(system, 10 * positions.numpy(), integrator=openmm.VerletIntegrator(0.0005))
    context.setVelocitiesToTemperature(300, 1)

    def total():
        state = context.getState(energy=True)
        return (state.getPotentialEnergy() + state.getKineticEnergy())._value

    def pairs_within():
        places = torch.tensor(np.array(context.getState(positions=True).getPositions(asNumpy=True)._value))
        return torch.pdist(places) < network.cutoff

    context.getIntegrator().step(20)
    before, near = total(), pairs_within()
    energies, crossed = [], torch.zeros_like(near)
    for _ in range(16):
        context.getIntegrator().step(30)
        energies.append(total())
        crossed |= near != pairs_within()
    assert crossed.sum() > 10
    assert abs(np.mean(energies[-8:]) - np.mean(energies[:8])) < 0.01 * 2.494 * N_ATOMS
    assert np.abs(np.array(energies) - before).max() < 0.05 * 2.494 * N_ATOMS
