"""Two conformations that are found with domains as rigid bodies: adenylate kinase's, by their Cα atoms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from openmm import app

from openmm_density import DensityFit, DensityMap
from openmm_density.extensions.ensemble.states import trace_of
from openmm_density.extensions.ensemble.two_places import divisions, find_two_places, weak_domains
from openmm_density.models import read_model
from openmm_density.models.superposition import superposition

from ...fragments import fragment
from ...small_models import ADK_CLOSED, ADK_OPEN

RESOLUTION = 8.0
LID, NMP, CORE = slice(124, 153), slice(35, 60), slice(165, 214)


@pytest.fixture(scope="module")
def alphas():
    """The Cα atoms of both states as a topology of their own, the core of one on that of the other."""
    opened, closed = (read_model(path) for path in (ADK_OPEN, ADK_CLOSED))
    topology = app.Topology()
    chain = topology.addChain("A")
    for residue in opened.topology.residues():
        topology.addAtom("CA", app.element.carbon, topology.addResidue(residue.name, chain, residue.id))
    first, other = (model.positions[trace_of(model.topology)] for model in (opened, closed))
    rotation, shift = superposition(other[CORE], first[CORE])
    return topology, first, other @ rotation.T + shift


def test_soft_modes_tell_the_domains(alphas):
    topology, opened, _ = alphas
    for parts in divisions(topology, opened):
        assert parts.shape == (214,)
        lid, nmp, core = (np.bincount(parts[own]).argmax() for own in (LID, NMP, CORE))
        assert len({lid, nmp, core}) == 3
        assert all((parts[own] == part).mean() > 0.85 for own, part in ((LID, lid), (NMP, nmp), (CORE, core)))


@pytest.fixture(scope="module")
def mixture(alphas):
    """Return a map of 60% closed and 40% open molecules."""
    topology, opened, closed = alphas
    whole = DensityMap.simulate(topology, closed, RESOLUTION, 2.0, margin=30.0)
    other = DensityMap.simulate(topology, opened, RESOLUTION, like=whole, noise=0.2)
    return replace(whole, data=0.6 * whole.data + 0.4 * other.data)


@pytest.mark.parametrize("start", ["open", "closed"])
def test_weak_density_tells_the_domains_that_are_elsewhere(alphas, mixture, start):
    topology, opened, closed = alphas
    model = opened if start == "open" else closed
    parts = weak_domains(DensityFit(mixture, topology, RESOLUTION, positions=model), topology, model)
    lid, nmp, core = (np.bincount(parts[own]).argmax() for own in (LID, NMP, CORE))
    assert core == 0 and {lid, nmp} == {1, 2} and parts.max() == 2
    assert all((parts[own] == part).mean() > 0.85 for own, part in ((LID, lid), (NMP, nmp), (CORE, core)))
    alone = DensityMap.simulate(topology, model, RESOLUTION, 2.0)
    fit = DensityFit(alone, topology, RESOLUTION, positions=model)
    assert weak_domains(fit, topology, model) is None


def test_both_states_of_a_mixture_are_found_from_the_closed_one(alphas, mixture):
    # Its second round begins at the open form.
    topology, opened, closed = alphas
    found = find_two_places([DensityFit(mixture, topology, RESOLUTION, positions=closed)], topology, [closed])
    places = [opened, closed]

    def away(model: np.ndarray, place: np.ndarray) -> float:
        rotation, shift = superposition(model, place)
        return np.sqrt(((model @ rotation.T + shift - place) ** 2).sum(axis=1).mean())

    distances = np.array([[away(model, place) for place in places] for model in found.models])
    nearest = distances.argmin(axis=1)
    assert sorted(nearest) == [0, 1] and distances.min(axis=1).max() < 2.0
    assert found.weights[list(nearest).index(1)] == pytest.approx(0.6, abs=0.12)


def test_a_small_molecule_has_no_domains(tmp_path):
    model = fragment(tmp_path / "model.pdb", residues=16)
    density_map = DensityMap.simulate(model.topology, model.positions, 5.0, 1.25)
    fit = DensityFit(density_map, model.topology, 5.0, positions=model.positions)
    assert find_two_places([fit], model.topology, [model.positions]) is None
