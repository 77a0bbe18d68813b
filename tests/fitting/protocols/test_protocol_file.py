"""Protocols in files, and what is said of a file that is wrong."""

import dataclasses

import pytest

from openmm_density.base.errors import InputError
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


STAGE = "[[stage]]\nsteps = 10\n"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("steps = ", "not a TOML file"),
        pytest.param("steps = " + "9" * 5000, "not a TOML file", id="a number of 5000 digits"),
        pytest.param("steps = " + "[" * 5000, "not a TOML file", id="5000 lists in each other"),
        ("", "it has no stage: add one or more tables [[stage]]"),
        ("stage = []", "it has no stage"),
        ("stage = 3", "stage must be one or more tables [[stage]], found 3"),
        ("[stage]\nsteps = 9", "it has [stage], a single table: write [[stage]] with two brackets"),
        ("[[stages]]\nsteps = 9", '"stages", which is not known: use [[stage]], name, strength,'),
        ("[[stage]]\nname = 'a'", 'stage "a" has no steps: give the number of steps of dynamics.'),
        (STAGE + "[[stage]]\nstrength = 1", 'stage "stage 2" has no steps'),
        ('[[stage]]\nname = "a\\nb"', "name of a stage must be a word or two"),
        (STAGE + "stepz = 3", '"stepz", which is not known'),
        ("stregth = 3\n" + STAGE, '"stregth", which is not known'),
        ("[[stage]]\nsteps = -1", "at least 0, found -1"),
        ("[[stage]]\nsteps = 1.5", "whole number"),
        ("[[stage]]\nsteps = 0", "steps must be at least 1"),
        ("[[stage]]\nsteps = true", "whole number"),
        ("match_blur = 1\n[[stage]]\nsteps = 9", "match_blur must be true or false, found 1"),
        ('search = "all"\n[[stage]]\nsteps = 9', "search must be one of off, auto, full, found 'all'"),
        ("[[stage]]\nsteps = 9\nstart = 'nearby'", "start must be one of any, near, far, found 'nearby'"),
        (STAGE + "strength = [0.0, 1.0]", "geometrically"),
        (STAGE + "strength = [1, 2, 3]", "two for its begin and end"),
        (STAGE + "strength = -1", "0 or more"),
        (
            STAGE + "strength = [5, 50]",
            "a part of the fit's strength, where 1 is all of it and 10 the most, found [5.0, 50.0]",
        ),
        (STAGE + "strength = 30", "give kJ/mol as the strength of the protocol"),
        (STAGE + "temperature = 0", "1 or more"),
        (STAGE + "temperature = 1e9", "temperature must be at most"),
        (STAGE + "resolution = -4", "resolution must be positive"),
        (STAGE + "restraints = ['gravity']", 'known names, found "gravity": use'),
        (STAGE + "restraints = 'ss'", "list of names"),
        (STAGE + "restraints = 3", "list of names"),
        (STAGE + "restraints = {ss = true}", "list of names"),
        (STAGE + "adaptive = 1", "true or false"),
        (STAGE + "rotamers = 'yes'", "rotamers must be true or false, found 'yes'"),
        (STAGE + "register = 2", "register must be true or false, found 2"),
        (STAGE + "pressure = 1", "strength to 0"),
        ("strength = 'strong'\n" + STAGE, "auto"),
        ("strength = nan\n" + STAGE, "auto"),
        ("timestep = 0\n" + STAGE, "timestep must be positive"),
        ("timestep = 500.0\n" + STAGE, "timestep must be at most 10 fs"),
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
