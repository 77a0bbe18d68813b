"""How much of the searches a fit has time for."""

from __future__ import annotations

import math

import pytest

from openmm_density.extensions.rebuilding.search_plan import SearchPlan
from openmm_density.fitting.protocols import Protocol, find_protocol

# Of a start model of EMD-6374.
ATOMS = 4564


def plan_of(protocol: Protocol, search: str = "auto", **options: bool) -> SearchPlan:
    return SearchPlan([(stage, True) for stage in protocol.stages], search, ATOMS, **options)


def standard(steps: int) -> Protocol:
    return find_protocol("standard", 2.9).from_start(0.7).with_steps(steps)


def test_stages_are_searched_for_what_they_ask_for() -> None:
    protocol = standard(20000)
    plan = plan_of(protocol)
    for number, stage in enumerate(protocol.stages):
        share = plan.before(number)
        if not (stage.register or stage.rotamers):
            assert share is None
            continue
        assert (share.register, share.peptides, share.by_energy) == (stage.register, stage.rotamers, True)
    without = plan_of(protocol, registers=False, peptides=False)
    shares = [without.before(number) for number in range(len(protocol.stages))]
    assert [share is not None for share in shares] == [stage.rotamers for stage in protocol.stages]
    assert not any(share.register or share.peptides for share in shares if share is not None)
    assert all(plan_of(protocol, "off").before(number) is None for number in range(len(protocol.stages)))


@pytest.mark.parametrize("steps", [50, 2000, 20000])
@pytest.mark.parametrize("on_gpu", [False, True])
def test_searches_take_no_longer_than_the_rest_of_the_fit(steps: int, on_gpu: bool) -> None:
    protocol = standard(steps)
    plan = plan_of(protocol, on_gpu=on_gpu)
    made: list[dict[str, float]] = []
    rooms = []
    for number in range(len(protocol.stages)):
        share = plan.before(number, made)
        if share is not None:
            rooms.append(share.work)
            made.append({"work": plan.work(share.work)})
    most = 8 * (0.02 * steps + 4000) if on_gpu else steps + 4000
    assert len(rooms) == 4 and rooms[0] == max(rooms)
    assert 0.99 * most < sum(each["work"] for each in made) <= 1.000001 * most
    full = plan_of(protocol, "full")
    number = next(n for n in range(len(protocol.stages)) if full.before(n) is not None)
    assert full.before(number, made).work == math.inf
