"""Domains that are found from a path, and how they turn."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from openmm_density.models import read_model
from openmm_density.models.rigid_domains import domain_motions, rigid_domains

from ..small_models import ADK_CLOSED


@pytest.fixture(scope="module")
def opened(kinase):
    return [np.arange(kinase.topology.getNumResidues())], traced(kinase)


def traced(model):
    return model.positions[[atom.index for atom in model.topology.atoms() if atom.name == "CA"]]


def members(labels, number):
    return set(np.flatnonzero(labels == number) + 1)


def overlap(found, expected):
    return len(found & expected) / len(found | expected)


def test_the_domains_of_adenylate_kinase_are_found_from_its_two_forms(opened):
    """CORE, LID (118-160) and NMP (30-67), by C. W. Müller et al., Structure 4, 147 (1996)."""
    chains, places = opened
    closed = read_model(ADK_CLOSED)
    traces = np.array([places, traced(closed)])
    labels = rigid_domains(traces, chains)
    assert labels.max() == 2
    assert overlap(members(labels, 1), set(range(118, 161))) > 0.75
    assert overlap(members(labels, 2), set(range(30, 68))) > 0.75
    motions = domain_motions(traces, labels, [["CORE"], ["LID"], ["NMP"]])
    assert 40 < motions[0].angle_from_first[1] < 60 and 35 < motions[1].angle_from_first[1] < 60


def test_a_domain_that_turns_is_found_with_its_axis(opened):
    chains, places = opened
    noise = np.random.default_rng(0)
    moving = np.zeros(len(places), dtype=bool)
    moving[120:160] = True
    axis, point = np.array([0.6, 0.0, 0.8]), places[120]
    traces = []
    for degrees in (0, 10, 20, 35):
        frame = places.copy()
        turn = Rotation.from_rotvec(np.radians(degrees) * axis)
        frame[moving] = turn.apply(frame[moving] - point) + point + 0.05 * degrees * axis
        # The molecule as a whole is elsewhere in each volume.
        frame = Rotation.random(random_state=degrees).apply(frame) + noise.normal(size=3) * 20
        traces.append(frame + noise.normal(scale=0.15, size=frame.shape))
    traces = np.array(traces)
    labels = rigid_domains(traces, chains)
    assert labels.max() == 1 and overlap(members(labels, 1), set(range(121, 161))) > 0.85
    (motion,) = domain_motions(traces, labels, [["A 1"], ["A 121-160"]])
    assert motion.angle_from_first == pytest.approx([0, 10, 20, 35], abs=1)
    assert motion.angle_from_previous == pytest.approx([0, 10, 10, 15], abs=1)
    turned = Rotation.random(random_state=0).apply(axis)
    assert np.dot(motion.axis, turned) > 0.99
    assert motion.shift_along_axis == pytest.approx(0.05 * 35, abs=0.2)


def test_what_moves_by_no_more_than_fits_differ_is_one_domain(opened):
    chains, places = opened
    noise = np.random.default_rng(1)
    traces = np.array([places + noise.normal(scale=0.3, size=places.shape) for _ in range(5)])
    labels = rigid_domains(traces, chains)
    assert not labels.any() and domain_motions(traces, labels, [["all"]]) == []


def test_a_peptide_is_one_domain(opened):
    places = opened[1][:30]
    traces = np.array([places, places * 1.1])
    assert not rigid_domains(traces, [np.arange(30)]).any()
