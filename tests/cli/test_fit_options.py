"""The options of a fit are read once, and come back from its folder as they were."""

from dataclasses import replace

import pytest

from openmm_density.cli.fit_arguments import defaults
from openmm_density.cli.fit_options import FitOptions
from openmm_density.cli.fit_record import Findings, FitRecord
from openmm_density.fitting.half_maps import StrengthScan
from openmm_density.fitting.placement import Placement

GIVEN = {
    "model": "model.pdb", "map": "map.mrc", "resolution": 5.0, "output": "out", "voxel_size": [1.0, 1.0, 1.1],
    "half_map": ["a.mrc", "b.mrc"], "protocol": "quick", "steps": 200, "temperature": 150.0,
    "restrain_to": "other.pdb", "ligand": [["BNZ", "c1ccccc1"]], "allow_scripts": True,
}  # fmt: skip


def options(**others):
    return FitOptions.of({**defaults(), **GIVEN, **others})


def test_each_option_concerns_one_thing_and_keeps_its_value():
    by_name = options().by_name()
    assert by_name.keys() == defaults().keys()
    assert by_name == {**defaults(), **GIVEN}
    assert options().force_field.fit_arguments()["ligands"] == {"BNZ": "c1ccccc1"}
    assert options().files.corrections.voxel_size == (1.0, 1.0, 1.1)


@pytest.mark.parametrize(
    ("changes", "steps", "highest", "restraints"),
    [
        ({}, 200, 150.0, {"distance"}),
        ({"steps": None, "temperature": None}, 5000, 300.0, {"distance"}),
        ({"restrain": "ss, cis"}, 200, 150.0, {"ss", "cis", "distance"}),
        ({"restrain": "none", "restrain_to": None}, 200, 150.0, set()),
    ],
)
def test_the_protocol_is_changed_as_it_is_asked_for(changes, steps, highest, restraints):
    protocol = options(strength=30.0, density_interval=1, **changes).changed_protocol()
    assert (protocol.strength, protocol.density_interval) == (30.0, 1)
    assert protocol.steps == steps
    assert max(max(stage.temperature) for stage in protocol.stages) == highest
    held = {name for stage in protocol.stages for name in stage.restraints}
    assert restraints <= held and (held == restraints or "restrain" not in changes)


@pytest.mark.parametrize(
    ("given", "sought"),
    [
        ({}, "auto"),
        ({"strength": "auto"}, "auto"),
        ({"strength": 30.0}, None),
        ({"strength": 30.0, "final_strength": "auto"}, "auto"),
        ({"final_strength": 12.0}, 12.0),
        ({"strength": 30.0, "final_strength": 12.0}, 12.0),
    ],
)
def test_a_strength_that_is_asked_for_is_kept_to_the_end_unless_another_is(given, sought, tmp_path):
    assert options(**given).course.changed_protocol(5.0).final_strength_sought == sought
    # As in the protocol.toml of an earlier fit.
    earlier = options().course.changed_protocol(5.0).finishing()
    earlier.write(tmp_path / "earlier.toml")
    again = options(protocol=str(tmp_path / "earlier.toml"), **given).course.changed_protocol(5.0)
    assert again.final_strength_sought == sought and again.stages[-1].final


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("model.pdb", "map.mrc", "a.mrc", "b.mrc", "other.pdb"):
        (tmp_path / name).write_text(name)
    return tmp_path


def test_a_record_comes_back_but_for_what_was_allowed(files):
    placement = Placement(
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [1.0, 2.0, 3.0], 0.5, 0.1, 0.2, 0.3, 0.4
    )
    scan = StrengthScan([5.0, 10.0, 20.0], [0.5, 0.6, 0.7], [0.4, 0.5, 0.4], 10.0)
    began = FitRecord.new(options()).with_scan(scan)
    began = replace(began, findings=Findings(placement, None, began.findings.scan))
    ends = began.protocol.strength, began.protocol.final_strength, began.protocol.final_strength_limit
    assert ends == ("auto", "auto", 10.0)
    rising = replace(scan, free=[0.4, 0.5, 0.6], chosen=20.0)
    assert FitRecord.new(options()).with_scan(rising).protocol.final_strength_limit is None
    assert FitRecord.new(options()).findings.place == "auto"
    began.write(files)
    now = FitOptions.of({**defaults(), "resume": "out"})
    resumed = FitRecord.read(files, now)
    assert resumed.protocol == began.protocol
    # What repeats the fit is what was asked, not where that placed the model.
    assert resumed.asked == began.asked == {"place": "auto", "predicted": "auto", "platform": None}
    assert resumed.findings.scan == scan and resumed.findings.place.as_dict() == placement.as_dict()
    told, then = resumed.options.by_name(), began.options.by_name()
    changed = {name for name in told if told[name] != then[name]}
    assert told["model"] == str(files / "model.pdb") and told["half_map"] == [
        str(files / "a.mrc"),
        str(files / "b.mrc"),
    ]
    assert changed - {"model", "map", "half_map", "restrain_to"} == {"resume", "allow_scripts", "place"}
    assert told["allow_scripts"] is False and told["resume"] == "out"
