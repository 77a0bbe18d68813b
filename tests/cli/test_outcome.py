"""What a fit prints at its end."""

import json

from openmm_density.cli.outcome import print_outcome
from openmm_density.report.figures import pull_in_words


def test_a_curve_that_does_not_fall_is_told_apart_in_the_table(fitted, capsys):
    summary = json.loads((fitted / "summary.json").read_text())
    shown = {}
    for falls, resolution in ((True, 4.5), (False, 4.5), (False, None), (None, None)):
        print_outcome(summary | {"fsc_falls_final": falls, "fsc_resolution_final": resolution}, fitted)
        (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("FSC"))
        before, reference = (
            f"{summary[f'fsc_resolution_{stage}']:.2f}" for stage in ("initial", "reference")
        )
        assert (
            line.startswith("FSC of map and model 0.5 at (Å)") and before in line and line.endswith(reference)
        )
        shown[falls, resolution] = line.split(before, 1)[1].removesuffix(reference).strip()
    assert list(shown.values()) == ["4.50", "above to 4.50", "nowhere", ""]


def test_a_part_of_the_model_is_named_and_what_there_is_none_of_is_left_out(fitted, capsys):
    summary = json.loads((fitted / "summary.json").read_text())
    assert summary["ca_rmsd_of"] == {"atoms": ["CA"], "matched": 40, "residues": 40}
    print_outcome(summary, fitted)
    assert "\nCα RMSD to the reference (Å)  " in capsys.readouterr().out
    part = {"atoms": ["P"], "matched": 40, "residues": 97}
    without = {
        f"geometry_{stage}": summary[f"geometry_{stage}"] | {"twisted_count": None}
        for stage in ("initial", "relaxed", "final", "reference")
    }
    without["geometry_initial"] |= {"base_pair_count": 12}
    opened = {"base_pairs_lost": ["A DA 6 - B DT 19 (cWW)"]}
    print_outcome(summary | without | opened | {"ca_rmsd_of": part}, fitted)
    lines = capsys.readouterr().out.splitlines()
    assert "0 chiral centres inverted, 1 of 12 base pairs opened" in lines
    assert any(
        line.startswith("backbone (P) RMSD to the reference (Å), of 40 of 97 residues ") for line in lines
    )
    assert not any(line.startswith("twisted peptides") for line in lines)
    # Doubts follow the verdict; notes are in the report.
    (verdict,) = (number for number, line in enumerate(lines) if line.startswith("Verdict: the model "))
    assert all(line.startswith("Doubt: ") for line in lines[verdict + 1 : -1])
    assert f" and {len(summary['notes'])} notes" in " ".join(lines[-2:])


def test_restraints_released_on_purpose_are_told_from_those_that_failed(fitted, capsys):
    summary = json.loads((fitted / "summary.json").read_text())
    for beyond, told in (
        (
            {"torsion": ["a"] * 12, "cis": []},
            ["released on purpose, where the density contradicts them: torsion 12"],
        ),
        ({"cis": ["a"]}, ["violated: cis 1"]),
        (
            {"base-pairs": ["a"], "cis": ["a"], "distance": ["a", "b"]},
            [
                "released on purpose, where the density contradicts them: base-pairs 1, distance 2",
                "violated: cis 1",
            ],
        ),
        ({"cis": []}, []),
    ):
        print_outcome(summary | {"restraints_violated": beyond}, fitted)
        text = " ".join(capsys.readouterr().out.split())
        expected = [f"restraints {each} (which: `restraints_violated` in summary.json)" for each in told]
        assert all(each in text for each in expected) and text.count("restraints_violated") == len(expected)


def test_where_the_time_went_is_explained_where_it_was_asked_for(fitted, capsys):
    summary = json.loads((fitted / "summary.json").read_text())
    assert summary["ms_by_force"] is None
    assert summary["seconds_within"]["contexts"] > 0
    print_outcome(summary, fitted)
    assert "evaluated alone" not in capsys.readouterr().out
    parts = {"start_up": 2.0, "preparation": 3.5, "dynamics": 20.0, "searches": 30.0, "pictures": 1.0}
    within = {
        "completion": 1.5,
        "system": 0.5,
        "compilation": 4.0,
        "contexts": 2.5,
        "register": 21.0,
        "side_chains": 3.0,
    }
    asked = {"seconds_by_part": parts, "seconds_within": within, "ms_per_step": 1.0}
    print_outcome(summary | asked | {"ms_by_force": {"nonbonded": 0.61, "rest": 0.02}}, fitted)
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for line in (
        "set-up 5.5 s start-up 2.0, preparation 3.5, building missing atoms 1.5, creating the System 0.5",
        "dynamics 20.0 s ms a step: 1.00; evaluated alone: nonbonded 0.61, rest 0.02",
        "searches 30.0 s shifting stretches 21.0, fitting rotamers 3.0",
        "output 1.0 s",
        "of all this compiling kernels 4.0, creating OpenMM Contexts 2.5",
    ):
        assert line in said


def test_the_pull_at_the_end_is_told_with_what_set_it():
    found = {"chosen": 40.0, "most": 200.0, "limited_by": ["angle_rmsz", "clash_count"]}
    summary = {"strength": 200.0, "final_strength": 40.0, "final_strength_search": found}
    full = "k = 200.0 kJ/mol per fitted atom"
    assert pull_in_words(summary) == f"{full}, 40.0 at the end: more spoils angles, clashes"
    # The protocol "gentle" ends at a lower strength by itself.
    for halves, most, because in (
        ({"chosen": 40.0}, 40.0, "the half maps support no more"),
        ({"chosen": 80.0}, 40.0, "the geometry stays within its limits"),
        (None, 40.0, "the geometry stays within its limits"),
    ):
        summary |= {"half_maps": halves, "final_strength_search": found | {"most": most, "limited_by": []}}
        assert pull_in_words(summary) == f"{full}, 40.0 at the end: {because}"
    summary["final_strength_search"] = None
    assert pull_in_words(summary) == f"{full}, 40.0 at the end"
    assert pull_in_words(summary | {"final_strength": 200.0}) == full
