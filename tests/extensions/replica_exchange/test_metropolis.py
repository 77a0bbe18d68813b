"""Exchanges keep the ensemble of every rung, and are counted."""

from __future__ import annotations

import numpy as np
import pytest

from openmm_density.extensions.replica_exchange.metropolis import Attempt, ExchangeRecord, exchange_neighbours


def reduced(stiffness, places):
    """Return the energies in kT of harmonic oscillators at some places on rungs of some stiffness."""
    return 0.5 * stiffness[:, None] * (places**2).sum(axis=1)[None, :]


def test_every_rung_keeps_its_distribution_of_energies():
    """Three-dimensional oscillators: energies have the mean 1.5 kT and the variance 1.5 on every rung, whatever exchanges."""
    random = np.random.default_rng(2)
    stiffness = np.array([1.0, 2.0, 4.0])
    places = random.normal(size=(3, 3)) / np.sqrt(stiffness)[:, None]
    energies, rounds = [], 6000
    record = ExchangeRecord.begin(3)
    for round_number in range(rounds):
        # Only the first rung forgets at once where it was; to the others most of what is new comes by exchange.
        kept = np.array([[0.0], [0.9], [0.9]])
        new = random.normal(size=places.shape) / np.sqrt(stiffness)[:, None]
        places = kept * places + np.sqrt(1 - kept**2) * new
        attempt = exchange_neighbours(reduced(stiffness, places), round_number % 2 == 1, random)
        places = places[attempt.order]
        record.note(attempt)
        energies.append(0.5 * stiffness * (places**2).sum(axis=1))
    energies = np.array(energies)
    assert energies.mean(axis=0) == pytest.approx([1.5] * 3, rel=0.1)
    assert energies.var(axis=0) == pytest.approx([1.5] * 3, rel=0.2)
    assert record.tried == [rounds // 2] * 2
    assert sum(record.round_trips) > 300 and sorted(record.walkers) == [0, 1, 2]


def test_the_probability_is_that_of_metropolis():
    random = np.random.default_rng(0)
    energies = np.array([[0.0, 0.4], [0.8, 0.2]])  # Δ = 0.4 + 0.8 − 0.0 − 0.2
    accepted = [exchange_neighbours(energies, False, random)[1][0] for _ in range(4000)]
    assert np.mean(accepted) == pytest.approx(np.exp(-1.0), abs=0.03)
    downhill = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert all(exchange_neighbours(downhill, False, random)[1][0] for _ in range(50))


def test_round_trips_go_from_the_high_end_to_the_low_and_back():
    record = ExchangeRecord.begin(2)
    assert record.acceptance == [None]
    swap = Attempt(np.array([1, 0]), np.array([1]), np.array([0.5]))
    stay = Attempt(np.array([0, 1]), np.array([0]), np.array([2.0]))
    for attempt in (stay, swap, swap):
        record.note(attempt)
    # Walker 1 began high, was low and is high again; walker 0 was low, high, and is low again.
    assert record.walkers == [0, 1] and record.round_trips == [0, 1]
    assert record.acceptance == [pytest.approx(2 / 3)]
