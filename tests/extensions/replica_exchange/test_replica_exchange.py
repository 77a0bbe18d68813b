"""Replicas of a peptide in its map: what exchanges, how it is simulated, and that it goes on from where it was."""

from __future__ import annotations

import copy

import numpy as np
import openmm
import pytest
from openmm import unit

from openmm_density.base.errors import InputError, SimulationError
from openmm_density.extensions.replica_exchange import Ladder, LeftDensity, ReplicaExchange, Rung

from ...contexts import context_of, energy_of

STRENGTHS = Ladder.of_strength(5.0, 20.0, 3)


def assert_same(a, b):
    ours, theirs = a.state, b.state
    assert np.array_equal(ours.positions, theirs.positions)
    assert np.array_equal(ours.velocities, theirs.velocities)
    assert ours.record == theirs.record and ours.round == theirs.round


def test_strengths_exchange_by_the_density_energies_that_are_there(exchange_of, peptide):
    exchange = exchange_of(STRENGTHS)
    exchange.run(2, 5)
    reduced, similarities = exchange.reduced_energies(), exchange.similarities()
    k = STRENGTHS.strengths * peptide.density.n_fitted_atoms
    thermal = unit.MOLAR_GAS_CONSTANT_R.value_in_unit(unit.kilojoule_per_mole / unit.kelvin) * 300
    rise = reduced[0, 1] + reduced[1, 0] - reduced[0, 0] - reduced[1, 1]
    assert rise == pytest.approx((k[0] - k[1]) * (similarities[0] - similarities[1]) / thermal)
    assert exchange.round == 2 and sum(exchange.record.tried) == 2


def test_the_same_seed_gives_the_same_run_with_any_number_of_threads(exchange_of):
    runs = [exchange_of(STRENGTHS, threads=threads) for threads in (1, 3)]
    for each in runs:
        each.run(4, 5)
    assert_same(*runs)
    other = exchange_of(STRENGTHS, seed=4)
    other.run(4, 5)
    assert not np.array_equal(other.positions(), runs[0].positions())


@pytest.mark.parametrize("layout", ["separate", "merged"])
@pytest.mark.parametrize(
    "ladder", [STRENGTHS, Ladder.between(Rung(5.0, 400.0), Rung(20.0, 300.0), 3)], ids=["strength", "both"]
)
def test_what_is_killed_goes_on_bit_for_bit(exchange_of, tmp_path, layout, ladder):
    whole = exchange_of(ladder, layout=layout)
    whole.run(3, 5)
    whole.save(tmp_path / "state.npz")
    whole.run(3, 5)
    again = exchange_of(ladder, layout=layout, seed=3)
    again.load(tmp_path / "state.npz")
    again.run(3, 5)
    assert_same(whole, again)
    assert [each.name for each in tmp_path.iterdir()] == ["state.npz"]


def test_merged_replicas_have_the_energies_of_separate_ones(exchange_of, peptide):
    """One step without noise from the same state: forces of density, planarity and force field are alike."""
    moved = []
    for layout in ("separate", "merged"):
        exchange = exchange_of(STRENGTHS, layout=layout, friction=0.0, timestep=0.0005)
        exchange.step(4)
        moved.append(exchange.state)
    assert np.abs(moved[0].positions - moved[1].positions).max() < 1e-5
    assert np.abs(moved[0].velocities - moved[1].velocities).max() < 1e-2
    assert not np.allclose(moved[0].positions[0], moved[0].positions[2], atol=1e-6)


def test_models_change_places_where_temperatures_or_resolutions_differ(exchange_of):
    ladder = Ladder.between(Rung(20.0, 400.0, 7.0), Rung(20.0, 300.0, 5.0), 2)
    found = []
    for layout in ("separate", "merged"):
        exchange = exchange_of(ladder, layout=layout)
        before = exchange.state
        exchange._replicas.exchange(np.array([1, 0]))
        after = exchange.state
        assert np.allclose(after.positions, before.positions[::-1], atol=1e-6)
        hotter = np.sqrt(400.0 / 300.0)
        assert np.allclose(after.velocities[0], before.velocities[1] * hotter, atol=1e-3)
        found.append(exchange.reduced_energies())
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_reduced_energies_are_those_of_each_density_and_temperature(exchange_of, peptide):
    ladder = Ladder.between(Rung(10.0, 400.0, 7.0), Rung(20.0, 300.0, 5.0), 2)
    exchange = exchange_of(ladder)
    exchange.run(1, 10)
    reduced, state = exchange.reduced_energies(), exchange.state
    context = context_of(peptide.system)
    k = 20.0 * peptide.density.n_fitted_atoms
    context.setParameter(peptide.density.parameter_name, k)
    thermal = unit.MOLAR_GAS_CONSTANT_R.value_in_unit(unit.kilojoule_per_mole / unit.kelvin) * 300
    for j, positions in enumerate(state.positions):
        context.setPositions(positions)
        assert reduced[1, j] == pytest.approx(energy_of(context) / thermal, rel=1e-4)


def test_minimized_models_tell_which_is_best_at_the_end_of_the_ladder(exchange_of, peptide):
    exchange = exchange_of(STRENGTHS)
    exchange.run(1, 10)
    before = exchange.state
    models, energies = exchange.minimized(20)
    context = context_of(peptide.system)
    context.setParameter(peptide.density.parameter_name, 20.0 * peptide.density.n_fitted_atoms)
    for model, energy, started in zip(models, energies, before.positions):
        context.setPositions(model / 10)
        found = energy_of(context)
        assert found == pytest.approx(energy, abs=0.5)
        context.setPositions(started)
        assert found < energy_of(context)
    assert np.allclose(exchange.state.positions, before.positions, atol=1e-6)


def test_what_does_not_belong_together_is_refused(exchange_of, peptide, tmp_path):
    without = copy.deepcopy(peptide.system)
    without.removeForce(without.getNumForces() - 1)
    for refused, words in (
        (lambda: ReplicaExchange(without, peptide.density, STRENGTHS, peptide.positions), "no parameter"),
        (lambda: exchange_of(STRENGTHS, positions=peptide.positions[:-1]), "positions must be those of all"),
        (lambda: exchange_of(STRENGTHS, layout="beside"), "layout must be auto, separate or merged"),
        (lambda: exchange_of(STRENGTHS, platform="Abacus"), "platform must be a platform"),
        (lambda: exchange_of(STRENGTHS, planarity=None, layout="merged"), "planarity"),
        (lambda: exchange_of(STRENGTHS, parameters={"strenght": 1.0}), '"strenght"'),
    ):
        with pytest.raises(InputError, match=words):
            refused()
    box = copy.deepcopy(peptide.system)
    nonbonded = next(each for each in box.getForces() if isinstance(each, openmm.NonbondedForce))
    nonbonded.setNonbondedMethod(nonbonded.CutoffPeriodic)
    with pytest.raises(InputError, match="periodic"):
        ReplicaExchange(box, peptide.density, STRENGTHS, peptide.positions, layout="merged")
    exchange = exchange_of(STRENGTHS)
    (tmp_path / "state.npz").write_bytes(b"no state")
    for name in ("state.npz", "none.npz"):
        with pytest.raises(InputError, match="holds no state of replicas"):
            exchange.load(tmp_path / name)
    exchange.save(tmp_path / "state.npz")
    other = exchange_of(Ladder.of_strength(5.0, 20.0, 2))
    with pytest.raises(InputError, match="state must be of this System and ladder"):
        other.load(tmp_path / "state.npz")


def test_a_replica_that_blows_up_is_told_of(exchange_of, peptide):
    exchange = exchange_of(STRENGTHS)
    state = exchange.state
    state.velocities[1] *= np.nan
    exchange.restore(state)
    with pytest.raises(SimulationError, match="rung 1 of the ladder"):
        exchange.run(1, 1)


def test_a_replica_that_comes_within_reach_of_another_is_told_of(exchange_of):
    exchange = exchange_of(STRENGTHS, layout="merged")
    state = exchange.state
    merged = exchange._replicas
    apart = merged._merged.merged_positions(list(state.positions))
    first, second = merged._merged.first[:2]
    apart[second : merged._merged.first[2]] = apart[first:second] + 0.1
    merged._context.setPositions(apart)
    with pytest.raises(LeftDensity, match="raise the lowest strength"):
        exchange.positions()
