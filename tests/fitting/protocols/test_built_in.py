"""The built-in protocols: what they do with a map of a resolution, and with a model that starts near or far."""

import itertools

import pytest

from openmm_density.base.errors import InputError
from openmm_density.fitting.protocols import find_protocol


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


def test_the_ladder_comes_down_to_the_map_itself():
    rungs = [stage.resolution for stage in find_protocol("cascade", 3.0).from_start(0.9).stages]
    assert rungs == [7.5, 7.5, 6.0, 4.5] + [None] * 6


def test_a_coarse_map_leaves_more_to_restraints():
    def held(resolution, cc, name="standard"):
        stages = find_protocol(name, resolution).from_start(cc).stages
        return {name for name in ("ss", "distance") if all(name in stage.restraints for stage in stages)}

    assert held(3.0, 0.9) == held(3.0, 0.1) == set()
    assert held(5.0, 0.9) == held(5.0, 0.9, "quick") == {"ss", "distance"}
    # From afar until the model has come: hinges end with other torsions.
    far = find_protocol("standard", 5.0).from_start(0.1).stages
    without = [stage.name for stage in far if "ss" not in stage.restraints]
    assert without == ["hold", "anneal"] == [stage.name for stage in far if stage.strength == (1.0, 1.0)]


def test_side_chains_and_register_are_looked_for_where_a_map_shows_them():
    def looked_for(name, resolution, cc):
        stages = find_protocol(name, resolution).from_start(cc).stages
        return [(stage.name, stage.register) for stage in stages if stage.register or stage.rotamers]

    for cc in (0.1, 0.9):
        searched = [("heat", True), ("tighten", True), ("hold", True)]
        assert looked_for("standard", 3.0, cc) == [*searched, ("anneal", False)]
        assert looked_for("standard", 4.0, cc) == [*searched, ("anneal", False)]
        assert looked_for("standard", 4.2, cc) == [("tighten", False), ("anneal", False)]
        assert looked_for("standard", 5.0, cc) == []
    assert looked_for("gentle", 3.0, 0.9) == []


def test_side_chains_are_held_staggered_at_the_end_alone():
    for name, resolution, cc in itertools.product(("standard", "quick", "cascade"), (3.0, 5.0), (0.1, 0.9)):
        stages = find_protocol(name, resolution).from_start(cc).stages
        assert ["rotamers" in stage.restraints for stage in stages] == [False] * (len(stages) - 1) + [True]


def test_unknown_names_and_missing_files():
    with pytest.raises(InputError, match="quick, standard, cascade, gentle"):
        find_protocol("fast", 5.0)
    with pytest.raises(InputError, match="No such file"):
        find_protocol("missing.toml", 5.0)
