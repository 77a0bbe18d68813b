"""How much of the searches a fit has time for."""

from __future__ import annotations

import math

import pytest

from openmm_density.fitting.protocols import Protocol, Stage, find_protocol
from openmm_density.fitting.rebuilding.search_plan import SearchPlan

# Of a start model of EMD-6374.
ATOMS, SIDE_CHAINS = 4564, 229


def plan_of(protocol: Protocol, search: str = "auto", **options: object) -> SearchPlan:
    return SearchPlan([(stage, True) for stage in protocol.stages], search, ATOMS, SIDE_CHAINS, **options)


def standard(steps: int) -> Protocol:
    return find_protocol("standard", 2.9).from_start(0.7).with_steps(steps)


def planned_work(plan: SearchPlan, protocol: Protocol) -> float:
    """Return the steps that searches take which use all that they may."""
    made: list[dict[str, float]] = []
    for number in range(len(protocol.stages)):
        share = plan.before(number, made)
        if share is not None:
            made.append({"work": plan.work(share, share.register)})
    return sum(each["work"] for each in made)


def test_the_built_in_protocols_leave_nothing_out() -> None:
    for name in ("standard", "quick", "cascade"):
        protocol = find_protocol(name, 2.9).from_start(0.7).finishing()
        plan = plan_of(protocol, n_peptides=281)
        for number, stage in enumerate(protocol.stages):
            share = plan.before(number)
            if not (stage.register or stage.rotamers):
                assert share is None
                continue
            assert share.left_out == () and share.side_chains and share.peptides == stage.rotamers
            assert bool(share.register) == stage.register
            # 20 places of a poor start took 290 s of one thread.
            assert not stage.register or share.register > 2 * 290 / 2.8e-6


@pytest.mark.parametrize("steps", [50, 200, 500, 1000, 1500, 2000])
def test_searches_of_short_fits_take_no_longer_than_their_steps(steps: int) -> None:
    protocol = standard(steps)
    plan = plan_of(protocol)
    assert planned_work(plan, protocol) <= steps * 1.000001
    left_out = [share.left_out for n in range(len(protocol.stages)) if (share := plan.before(n)) is not None]
    assert any(left_out)
    if steps <= 200:
        assert left_out == [("register", "side chains")] * 3 + [("side chains",)]


def test_side_chains_of_the_last_stage_come_first() -> None:
    protocol = standard(1500)
    plan = plan_of(protocol)
    shares = {stage.name: plan.before(n) for n, stage in enumerate(protocol.stages)}
    searched = [name for name, share in shares.items() if share is not None and not share.is_nothing]
    assert searched == ["anneal"]
    assert shares["tighten"].left_out == ("register", "side chains")


def test_what_a_search_did_not_need_the_next_may_use() -> None:
    protocol = standard(6000)
    plan = plan_of(protocol)
    first, second = [n for n, stage in enumerate(protocol.stages) if stage.register][:2]
    some, all_of_it = (
        plan.before(second, [{"work": plan.work(plan.before(first), tried)}])
        for tried in (0.0, plan.before(first).register)
    )
    assert some.register > all_of_it.register > 0


def test_after_a_second_search_in_vain_there_is_no_third() -> None:
    protocol = standard(20000)
    _, second, third = [n for n, stage in enumerate(protocol.stages) if stage.register]
    before = [n for n in range(third) if plan_of(protocol).before(n) is not None]
    found: dict[str, object] = {"stretches": [{}], "undone": False, "places_left": 0}
    vain = {**found, "stretches": []}

    def made(last: dict[str, object]) -> list[dict[str, object]]:
        return [last if n == second else found for n in before]

    share = plan_of(protocol).before(third, made(vain))
    assert share.is_nothing and share.left_out == ()
    for last in (found, {**vain, "undone": True}, {**vain, "places_left": 1}):
        assert plan_of(protocol).before(third, made(last)).register > 0
    assert plan_of(protocol, "full").before(third, made(vain)).register == math.inf
    # What the first one did not find, the second may.
    assert plan_of(protocol).before(second, [vain]).register > 0


def test_after_a_second_search_in_vain_there_is_a_third_by_evidence_where_energy_tells_too() -> None:
    protocol = standard(20000)
    _, second, third = [n for n, stage in enumerate(protocol.stages) if stage.register]
    before = [n for n in range(third) if plan_of(protocol).before(n) is not None]
    vain: dict[str, object] = {"stretches": [], "undone": False, "places_left": 0}
    plan = plan_of(protocol, by_energy=True)
    share = plan.before(third, [vain for _ in before])
    assert share.only_evidence and share.register > 0 and share.side_chains
    assert not plan.before(second, [vain]).only_evidence


def test_off_and_full_do_not_ask_for_time() -> None:
    protocol = standard(50)
    for number, stage in enumerate(protocol.stages):
        assert plan_of(protocol, "off").before(number) is None
        share = plan_of(protocol, "full").before(number, [{"work": 1e9}])
        if stage.register:
            assert share.register == math.inf and share.side_chains
        assert share is None or share.left_out == ()


def test_what_cannot_be_searched_is_not_left_out() -> None:
    stage = Stage("hold", 50, register=True)
    for search, steps in (("full", 50), ("auto", 5000)):
        protocol = Protocol((stage,)).with_steps(steps)
        share = plan_of(protocol, search, registers=False).before(0)
        assert (share.register, share.side_chains, share.left_out) == (0.0, True, ())
    assert SearchPlan([(stage, False)], "full", ATOMS, SIDE_CHAINS).before(0) is None


def test_peptides_are_flipped_before_stages_that_fit_rotamers_where_there_is_time() -> None:
    protocol = standard(20000)
    plan = plan_of(protocol, n_peptides=291)
    shares = {stage.name: plan.before(number) for number, stage in enumerate(protocol.stages)}
    flipping = [name for name, share in shares.items() if share is not None and share.peptides]
    assert flipping == [stage.name for stage in protocol.stages if stage.rotamers]
    assert not any(share.left_out for share in shares.values() if share is not None)
    # What they take is not there for stretches, and is counted.
    others = plan_of(protocol)
    last = len(protocol.stages) - 1
    assert plan.work(plan.before(last), 0.0) > others.work(others.before(last), 0.0)
    assert not others.before(last).peptides


@pytest.mark.parametrize("steps", [50, 1000, 2000, 4000])
def test_short_fits_leave_peptides_out_before_side_chains(steps: int) -> None:
    protocol = standard(steps)
    plan, others = plan_of(protocol, n_peptides=291), plan_of(protocol)
    for number in range(len(protocol.stages)):
        share, other = plan.before(number), others.before(number)
        if share is not None:
            assert share.side_chains == other.side_chains or protocol.stages[number].register
            assert share.peptides <= share.side_chains
            assert ("peptides" in share.left_out) == (protocol.stages[number].rotamers and not share.peptides)
    assert planned_work(plan, protocol) <= max(steps, steps**2 / 2000) * 1.000001
    assert plan_of(protocol, "full", n_peptides=291).before(len(protocol.stages) - 1).peptides
    assert plan_of(protocol, "off", n_peptides=291).before(len(protocol.stages) - 1) is None
