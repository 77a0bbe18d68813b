"""Protocols and their stages: what they ask for, and what is made of them."""

import dataclasses

import pytest

from openmm_density.base.errors import InputError
from openmm_density.fitting.protocols import Protocol, Stage, find_protocol


def test_its_scale_grows_geometrically_and_temperature_linearly():
    stage = Stage("draw", 100, strength=(0.1, 0.4), temperature=(300, 100))
    assert [stage.scale_at(part) for part in (0, 0.5, 1)] == pytest.approx([0.1, 0.2, 0.4])
    assert [stage.temperature_at(part) for part in (0, 0.5, 1)] == pytest.approx([300, 200, 100])
    assert Stage("warm up", 1, strength=0.0).scale_at(0.7) == 0.0


@pytest.mark.parametrize("steps", [1, 7, 100, 12345])
def test_any_number_of_steps_is_shared_out(steps):
    for resolution in (3.0, 5.0):
        protocol = find_protocol("standard", resolution)
        changed = protocol.with_steps(steps)
        assert changed.steps == steps
        for before, after in zip(protocol.stages, changed.stages):
            assert abs(after.steps - before.steps * steps / protocol.steps) <= 1
        assert [changed.from_start(cc).steps for cc in (0.1, 0.9)] == [steps, steps]


def test_no_stage_for_a_start_is_said():
    protocol = Protocol((Stage("draw", 100, start="far"),))
    with pytest.raises(InputError, match=r"no stage is for a model that starts near \(CC 0.80\)"):
        protocol.from_start(0.8)
    assert protocol.from_start(0.2).steps == 100


def test_stages_end_where_the_density_has_acted():
    protocol = dataclasses.replace(find_protocol("standard", 5.0), density_interval=4).with_steps(333)
    assert all(stage.steps % 4 == 0 for stage in protocol.stages)
    assert 333 <= protocol.steps < 333 + 4 * len(protocol.stages)


def test_a_temperature_replaces_the_highest():
    stages = find_protocol("standard", 5.0).with_temperature(250).stages
    assert {stage.temperature for stage in stages} == {(10.0, 250.0), (250.0, 250.0), (250.0, 10.0)}
    stages = find_protocol("standard", 3.0).with_temperature(450).stages
    assert {max(stage.temperature) for stage in stages} == {300.0, 450.0}


def test_restraints_are_chosen_where_the_protocol_has_them_or_throughout():
    stages = find_protocol("standard", 3.0).with_restraints(["ss", "elastic"]).from_start(0.9).stages
    assert [stage.restraints for stage in stages] == [("ss", "elastic")] * 2 + [("elastic",)] * 6
    assert all(stage.restraints == () for stage in find_protocol("quick", 5.0).with_restraints([]).stages)
