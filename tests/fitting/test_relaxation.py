"""Models that were damaged on purpose come through."""

import json
from types import SimpleNamespace

import numpy as np
import openmm
import pytest

from openmm_density.fitting import relaxation
from openmm_density.fitting.platforms import make_context
from openmm_density.fitting.relaxation import Relaxation
from openmm_density.fitting.stability import Safeguard
from openmm_density.models import prepare, read_model

from ..small_models import ADK_OPEN
from .damaged_models import DAMAGES, assert_sane, damaged, fit_of, native

CPU = openmm.Platform.getPlatformByName("CPU")


@pytest.mark.parametrize(
    ("damage", "platform"), [*((damage, "CPU") for damage in DAMAGES), ("atoms at 0.1 Å", "Reference")]
)
def test_a_damaged_model_comes_through_a_fit(damage, platform, tmp_path):
    fit = fit_of(damaged(tmp_path, damage), tmp_path, platform)
    assert_sane(fit, fit.run())


def test_a_model_that_is_well_is_left_alone(tmp_path):
    fit = fit_of(native(tmp_path), tmp_path, "CPU")
    positions = fit.prepared.positions / 10
    assert not fit.start_strain.is_bad
    assert fit._run.engine.minimizer._relaxation.relaxed(positions) is positions


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("atoms at 0.1 Å", "pairs of atoms nearly in one place"),
        ("bonds of 4 Å", "5 bonds off by more than 0.5 Å"),
        ("a pierced ring", "rings pierced by bonds: A PHE 19 (by B LYS 13 CD - B LYS 13 CE)"),
    ],
)
def test_what_is_bad_is_named(damage, words, tmp_path):
    fit = fit_of(damaged(tmp_path, damage), tmp_path, "CPU")
    assert words in "; ".join(fit.start_strain.described(fit.prepared.topology))
    found = fit.start_strain.as_dict(fit.prepared.topology)
    assert json.loads(json.dumps(found)) == found and found["relaxed_in_stages"]


def test_angles_that_are_off_everywhere_are_bad(tmp_path):
    fit = fit_of(native(tmp_path), tmp_path, "CPU")
    noise = np.random.default_rng(1).normal(0.0, 0.06, fit.prepared.positions.shape)
    strain = fit._run.engine.minimizer.strain(fit.prepared.positions + noise)
    assert strain.is_bad and strain.stretched == 0 and 4.0 < strain.angle_rmsd < 9.0


def test_a_damage_stays_where_it_is(tmp_path):
    """What is far from it is moved no farther than a minimiser moves it."""
    fit = fit_of(damaged(tmp_path, "bonds of 4 Å"), tmp_path, "CPU")
    whole = native(tmp_path)
    start = fit.prepared.positions / 10
    relaxed = fit._run.engine.minimizer._relaxation.relaxed(start)
    alpha = [a.index for a in fit.prepared.topology.atoms() if a.name == "CA"]
    assert np.linalg.norm(relaxed[alpha] - start[alpha], axis=1).max() < 0.12
    again = fit._run.engine.minimizer._relaxation.relaxed(start)
    assert np.array_equal(relaxed, again) and len(whole.positions) < len(start)


@pytest.mark.parametrize("platform", [CPU, SimpleNamespace(getName=lambda: "CUDA")], ids=["CPU", "a GPU"])
def test_what_is_far_from_a_damage_does_not_move_at_all(platform, monkeypatch):
    """Nor is a GPU asked to move the little that does."""
    used = []

    def noted(system, integrator, where):
        used.append((where[0].getName(), where[1]["Threads"]))
        return make_context(system, integrator, where)

    monkeypatch.setattr(relaxation, "make_context", noted)
    prepared = prepare(read_model(ADK_OPEN))
    system, topology = prepared.system(constraints=None, rigidWater=False), prepared.topology
    stages = Relaxation(system, topology, Safeguard(topology, system), platform, {"Threads": "1"}, 1)
    start = prepared.positions / 10
    at = {(atom.residue.id, atom.name): atom.index for atom in topology.atoms()}
    torn, held = next((at[number, "CD2"], at[number, "CG"]) for number, name in at if name == "CD2")
    start[torn] = start[held] + 4.0 * (start[torn] - start[held])
    assert stages.strain(start).stretched == 1
    relaxed = stages.relaxed(start)
    assert not stages.strain(relaxed).is_bad
    assert used == [("CPU", "1")]
    moved = np.linalg.norm(relaxed - start, axis=1) > 0
    assert moved[torn] and np.linalg.norm(start[moved] - start[torn], axis=1).max() < 2.5
    assert 10 < moved.sum() < len(start) / 4
    edge = [[a.index, b.index] for a, b in topology.bonds() if moved[a.index] != moved[b.index]]
    lengths = [np.linalg.norm(np.diff(each[edge], axis=1), axis=-1) for each in (start, relaxed)]
    assert edge and np.abs(lengths[1] - lengths[0]).max() < 0.015
