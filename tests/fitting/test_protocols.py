"""Protocols: the built-in ones, their files, and what is said of a file that is wrong."""

import dataclasses
import itertools

import pytest

from openmm_density.errors import InputError
from openmm_density.fitting.protocols import PROTOCOLS, Protocol, Stage, find_protocol, read_protocol


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_file_holds_all_of_a_protocol(name, tmp_path):
    protocol = find_protocol(name, 3.2)
    assert protocol.name == name
    path = tmp_path / "protocol.toml"
    protocol.write(path)
    assert find_protocol(str(path), 9.9) == protocol


def test_values_that_toml_could_spoil_survive(tmp_path):
    stage = Stage('a "quoted" \\ stage, ü', 7, 0.3, (250, 1e-3 + 1), 7.5, ("ss", "cis"), None, True, True)
    protocol = Protocol((stage,), strength=1e-7, timestep=2.5, density_interval=1)
    protocol.write(tmp_path / "p.toml")
    assert read_protocol(tmp_path / "p.toml") == dataclasses.replace(protocol, name="custom")
    assert protocol.stages[0].strength == (0.3, 0.3)
    assert protocol.stages[0].restraints == ("ss", "cis")


def test_a_short_file_takes_the_defaults(tmp_path):
    (tmp_path / "short.toml").write_text("[[stage]]\nsteps = 100\n")
    protocol = read_protocol(tmp_path / "short.toml")
    assert protocol.name == "short" and protocol.strength == "auto"
    assert protocol.stages == (Stage("stage 1", 100),)


@pytest.mark.parametrize("steps", [1, 7, 100, 12345])
def test_any_number_of_steps_is_shared_out(steps):
    for resolution in (3.0, 5.0):
        protocol = find_protocol("standard", resolution)
        changed = protocol.with_steps(steps)
        assert changed.steps == steps
        for before, after in zip(protocol.stages, changed.stages):
            assert abs(after.steps - before.steps * steps / protocol.steps) <= 1
        assert [changed.from_start(cc).steps for cc in (0.1, 0.9)] == [steps, steps]


def test_a_model_far_from_its_density_goes_down_the_ladder():
    standard = find_protocol("standard", 3.0)
    near, far = standard.from_start(0.41), standard.from_start(0.39)
    assert near.steps == far.steps == standard.steps == 20000
    assert [stage.resolution for stage in far.stages if stage.resolution] == [7.5, 7.5, 6.0, 4.5]
    assert not any(stage.resolution for stage in near.stages)
    # What was chosen for one start stays chosen when the file is used again.
    assert {stage.start for stage in (*near.stages, *far.stages)} == {"any"}
    assert near.from_start(0.1) == near
    assert not any(stage.strength[0] == 0 for stage in (*near.stages, *far.stages))


def test_a_coarse_map_leaves_more_to_restraints():
    def held(resolution, cc, name="standard"):
        stages = find_protocol(name, resolution).from_start(cc).stages
        return {name for name in ("ss", "distance") if all(name in stage.restraints for stage in stages)}

    assert held(3.0, 0.9) == held(3.0, 0.1) == set()
    assert held(5.0, 0.1) == {"ss"}
    assert held(5.0, 0.9) == held(5.0, 0.9, "quick") == {"ss", "distance"}


def test_side_chains_and_register_are_looked_for_where_a_map_shows_them():
    def looked_for(name, resolution, cc):
        stages = find_protocol(name, resolution).from_start(cc).stages
        return [(stage.name, stage.register) for stage in stages if stage.register or stage.rotamers]

    for cc in (0.1, 0.9):
        searched = [("heat", True), ("tighten", True), ("hold", True)]
        assert looked_for("standard", 3.0, cc) == [*searched, ("anneal", False)]
        assert looked_for("standard", 4.0, cc) == [("tighten", False), ("anneal", False)]
        assert looked_for("standard", 5.0, cc) == []
    assert looked_for("gentle", 3.0, 0.9) == []


def test_side_chains_are_held_staggered_at_the_end_alone():
    for name, resolution, cc in itertools.product(("standard", "quick", "cascade"), (3.0, 5.0), (0.1, 0.9)):
        stages = find_protocol(name, resolution).from_start(cc).stages
        assert ["rotamers" in stage.restraints for stage in stages] == [False] * (len(stages) - 1) + [True]


def test_no_stage_for_a_start_is_said():
    protocol = Protocol((Stage("draw", 100, start="far"),))
    with pytest.raises(InputError, match=r"no stage is for a model that starts near \(CC 0.80\)"):
        protocol.from_start(0.8)
    assert protocol.from_start(0.2).steps == 100


def test_stages_end_where_the_density_has_acted():
    protocol = dataclasses.replace(find_protocol("standard", 5.0), density_interval=4).with_steps(333)
    assert all(stage.steps % 4 == 0 for stage in protocol.stages)
    assert 333 <= protocol.steps < 333 + 4 * len(protocol.stages)


def test_strength_grows_geometrically_and_temperature_linearly():
    stage = Stage("draw", 100, strength=(0.1, 0.4), temperature=(300, 100))
    assert [stage.strength_at(part) for part in (0, 0.5, 1)] == pytest.approx([0.1, 0.2, 0.4])
    assert [stage.temperature_at(part) for part in (0, 0.5, 1)] == pytest.approx([300, 200, 100])
    assert Stage("warm up", 1, strength=0.0).strength_at(0.7) == 0.0


def test_a_temperature_replaces_the_highest():
    stages = find_protocol("standard", 5.0).with_temperature(250).stages
    assert {stage.temperature for stage in stages} == {(10.0, 250.0), (250.0, 250.0), (250.0, 10.0)}
    stages = find_protocol("standard", 3.0).with_temperature(450).stages
    assert {max(stage.temperature) for stage in stages} == {300.0, 450.0}


def test_restraints_are_chosen_where_the_protocol_has_them_or_throughout():
    stages = find_protocol("standard", 3.0).with_restraints(["ss", "elastic"]).from_start(0.9).stages
    assert [stage.restraints for stage in stages] == [("ss", "elastic")] * 2 + [("elastic",)] * 6
    assert all(stage.restraints == () for stage in find_protocol("quick", 5.0).with_restraints([]).stages)


def test_the_ladder_comes_down_to_the_map_itself():
    rungs = [stage.resolution for stage in find_protocol("cascade", 3.0).from_start(0.9).stages]
    assert rungs == [7.5, 7.5, 6.0, 4.5] + [None] * 6


STAGE = "[[stage]]\nsteps = 10\n"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("steps = ", "not a TOML file"),
        ("", "no stage"),
        ("stage = 3", "no stage"),
        ("[[stage]]\nname = 'a'", "steps"),
        (STAGE + "stepz = 3", '"stepz", which is not known'),
        ("stregth = 3\n" + STAGE, '"stregth", which is not known'),
        ("[[stage]]\nsteps = -1", "at least 0, found -1"),
        ("[[stage]]\nsteps = 1.5", "whole number"),
        ("[[stage]]\nsteps = 0", "steps must be at least 1"),
        ("match_blur = 1\n[[stage]]\nsteps = 9", "match_blur must be true or false, found 1"),
        ("[[stage]]\nsteps = 9\nstart = 'nearby'", "start must be one of any, near, far, found 'nearby'"),
        (STAGE + "strength = [0.0, 1.0]", "geometrically"),
        (STAGE + "strength = [1, 2, 3]", "two for its begin and end"),
        (STAGE + "strength = -1", "0 or more"),
        (STAGE + "temperature = 0", "1 or more"),
        (STAGE + "resolution = -4", "resolution must be positive"),
        (STAGE + "restraints = ['gravity']", '"gravity" is not known'),
        (STAGE + "restraints = 'ss'", "list of names"),
        (STAGE + "adaptive = 1", "true or false"),
        (STAGE + "rotamers = 'yes'", "rotamers must be true or false, found 'yes'"),
        (STAGE + "register = 2", "register must be true or false, found 2"),
        (STAGE + "pressure = 1", "strength to 0"),
        ("strength = 'strong'\n" + STAGE, "auto"),
        ("strength = nan\n" + STAGE, "auto"),
        ("timestep = 0\n" + STAGE, "timestep must be positive"),
        ("density_interval = 3\n" + STAGE, "density_interval must divide"),
        ("density_interval = 0\n" + STAGE, "at least 1"),
        ("friction = inf\n" + STAGE, "friction"),
        ("minimize_last = -1\n" + STAGE, "minimize_last"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path, text, named):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_protocol(path)
    assert str(path) in str(error.value) and named in str(error.value) and "\n" not in str(error.value)


def test_unknown_names_and_missing_files():
    with pytest.raises(InputError, match="quick, standard, cascade, gentle"):
        find_protocol("fast", 5.0)
    with pytest.raises(InputError, match="No such file"):
        find_protocol("missing.toml", 5.0)
