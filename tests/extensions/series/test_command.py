"""``openmm-density series``: its options become those of the fits, and what it prints."""

import json

import pytest

from openmm_density.cli import build_parser
from openmm_density.extensions.series import command as series

from ...cli.commands import run
from ...fragments import write_fragment


@pytest.fixture
def inputs(tmp_path):
    model = write_fragment(tmp_path / "model.pdb", residues=12)
    maps = []
    for number in (1, 2):
        maps.append(tmp_path / f"vol_{number}.mrc")
        arguments = (
            "--resolution",
            6,
            "--voxel-size",
            2,
            "--output",
            maps[-1],
            "--seed",
            number,
            "--noise",
            0.05,
        )
        assert run("simulate", model, *arguments) == 0
    return model, maps


def parsed(*arguments):
    return build_parser().parse_args([str(each) for each in arguments])


def test_options_are_those_of_the_fits(inputs, tmp_path):
    model, maps = inputs
    made = series._series(
        parsed(
            "series", model, *maps, "--resolution", 6, "--output", tmp_path / "out",
            "--next-protocol", "gentle", "--next-steps", 100, "--seed", 7, "--weights", "electron", "--start-at", 2,
            "--distance", "resid 0", "resid 5", "--distance", "resid 0", "resid 6", "--dihedral", *["all"] * 4,
            "--invert", "--threads", 1,
        )
    )  # fmt: skip
    settings = made.settings
    assert settings.protocols["first"].name == "standard" and settings.protocols["next"].name == "gentle"
    assert settings.protocols["next"].steps == 100 and settings.protocols["next"].search == "off"
    assert settings.fit_options["seed"] == 7 and settings.fit_options["weights"] == "electron"
    assert settings.start_at == 2 and settings.corrections["invert"] is True
    assert [each.kind for each in made.coordinates] == ["distance", "distance", "dihedral"]
    json.dumps(dict(settings.fit_options))


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda model, maps: (model, maps[0]), "two volumes or more, found 1 of them"),
        (lambda model, maps: (model, maps[0], maps[0]), "it is named twice"),
        (lambda model, maps: (model, maps[0], "no.mrc"), "no.mrc: there is no such file"),
        (
            lambda model, maps: (model, *maps, "--distance", "resid 0", "resid 99"),
            "--distance must select atoms",
        ),
        (
            lambda model, maps: (model, *maps, "--start-at", "3"),
            "--start-at must be the number of a volume, from 1 to 2",
        ),
        (
            lambda model, maps: (model, *maps, "--free-maps", maps[0]),
            "--free-maps must be as many as the 2 volumes",
        ),
        (lambda model, maps: (model, *maps, "--next-protocol", "slow"), "must be a known protocol"),
        (lambda model, maps: (model, *maps, "--solvent", "water"), "--solvent of a series must be"),
    ],
)
def test_what_cannot_be_is_one_sentence(inputs, tmp_path, capsys, change, said):
    capsys.readouterr()
    assert run("series", *change(*inputs), "--resolution", 6, "--output", tmp_path / "out") == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("openmm-density series: error: ") and said in error
    assert not list(tmp_path.glob("out/frame_*"))


def test_an_order_that_the_names_contradict_is_warned_of(inputs, tmp_path, capsys):
    model, maps = inputs
    third = maps[1].with_name("vol_10.mrc")
    third.write_bytes(maps[1].read_bytes())
    arguments = ("--resolution", 6, "--output", tmp_path / "out", "--start-at", 9)
    assert run("series", model, maps[0], third, maps[1], *arguments) == 2
    assert "warning: the volumes are taken in the order given, in which vol_10.mrc" in capsys.readouterr().err
