"""The command that a summary holds is the one that was given, without what has its default."""

import argparse
import shlex

import pytest

from openmm_density.cli.command_line import command_line
from openmm_density.cli.fit_arguments import add_arguments, defaults


def parsed(words):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return vars(parser.parse_args(words))


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--steps 500 --strength 12.5 --final-strength auto --temperature 350 --protocol cascade",
        "--half-map 'half 1.mrc' --half-map half2.mrc --voxel-size 1.06,1.06,1.1 --mirror --invert --columns F,PHI",
        "--forcefield amber14 --forcefield lig.xml --ligand LIG=CCO --ligand 'B=C(=O)[O-]' --dictionary a.cif",
        "--planarity off --restrain cis,chirality --restrain-to other.pdb --platform CUDA --threads 1 --seed 7",
        "--planarity 0.05 --atoms 'element != H and chainid 0' --about-mean --report-interval 50 --allow-scripts",
    ],
)
def test_it_is_parsed_to_the_same_options(options):
    words = ["model é.pdb", "map.mrc", "--resolution", "3.35", *shlex.split(options)]
    given = parsed([*words, "--output", "out put", "--overwrite", "--explain-time"])
    text = command_line(given, defaults(), "out put")
    program, command, *repeated = shlex.split(text)
    assert (program, command) == ("openmm-density", "fit")
    expected = {**given, "overwrite": False, "explain_time": False}
    assert parsed(repeated) == expected


def test_what_has_its_default_is_left_out():
    given = parsed(["m.pdb", "m.mrc", "--resolution", "5", "--output", "run", "--seed", "0"])
    assert (
        command_line(given, defaults(), "run") == "openmm-density fit m.pdb m.mrc --resolution 5 --output run"
    )


def test_one_to_amplitudes_needs_no_resolution():
    words = ["a.pdb", "b.mtz", "--amplitudes", "FP,SIGFP", "--make-free-flags", "--cycles", "3"]
    command = shlex.split(command_line(parsed(words), defaults(), "run"))
    assert parsed(command[2:]) == parsed([*words, "--output", "run"])
