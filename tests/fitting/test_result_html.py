"""What a notebook shows of a fit."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from openmm_density.fitting.fit_result import Written

PNG = b"\x89PNG\r\n picture"
VOID = {"img", "br"}


class Outline(HTMLParser):
    """Reads HTML and checks that each element that begins also ends."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.text, self.attributes = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes.append(dict(attrs))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture
def result(fitted):
    """Return a copy as it was before other tests wrote it, as writing changes a result."""
    return replace(fitted[1], written=None)


@pytest.fixture
def summary(result):
    """Return what a summary has of the figures that are shown."""
    geometry = {"bond_rmsz": 0.412, "angle_rmsz": 0.6, "clashscore": 1.0}
    geometry |= {"ramachandran_outlier_count": None, "rotamer_outlier_count": 2}
    return {
        **{
            name: getattr(result, name)
            for name in ("cc_initial", "cc_final", "cc_reference", "ca_rmsd_initial")
        },
        "ca_rmsd_final": result.ca_rmsd_final,
        **{f"q_score_{stage}": 0.5 for stage in ("initial", "final", "reference")},
        **{f"geometry_{stage}": geometry for stage in ("initial", "final")},
        "geometry_reference": None,
        "doubts": ["a <script>alert('x')</script> & \"doubt\""],
        "simulated": None,
    }


def test_a_result_that_was_not_written_shows_its_own_figures(result):
    outline = Outline(result._repr_html_())
    text = " ".join(outline.text)
    assert f"{result.cc_initial:.3f}" in text and f"{result.cc_final:.3f}" in text
    assert "reference" in outline.text and "img" not in outline.seen and "a" not in outline.seen
    without = replace(result, cc_reference=None, ca_rmsd_initial=None, ca_rmsd_final=None)
    shown = Outline(without._repr_html_()).text
    assert "reference" not in shown and "RMSD to the reference (Å)" not in shown


def test_a_written_result_shows_doubts_picture_and_links(result, summary, tmp_path, monkeypatch):
    folder = tmp_path / 'a "run" & <b>é<b>'
    folder.mkdir()
    for name in ("overview.png", "report.html", "fitted.pdb"):
        (folder / name).write_bytes(PNG)
    monkeypatch.chdir(tmp_path)
    markup = replace(result, written=Written(folder, summary))._repr_html_()
    outline = Outline(markup)
    assert "script" not in outline.seen and "b" not in outline.seen
    assert "a <script>alert('x')</script> & \"doubt\"" in "".join(outline.text)
    links = [each["href"] for each in outline.attributes if "href" in each]
    assert links == [
        f"a%20%22run%22%20%26%20%3Cb%3E%C3%A9%3Cb%3E/{name}" for name in ("report.html", "fitted.pdb")
    ]
    (picture,) = [each["src"] for each in outline.attributes if "src" in each]
    assert base64.b64decode(picture.partition("base64,")[2]) == PNG
    cells = re.findall(r"<tr><th scope=\"row\">(.*?)</th>(.*?)</tr>", markup)
    assert {name: re.findall("<td>(.*?)</td>", row) for name, row in cells}["bond RMSZ"] == [
        "0.41",
        "0.41",
        "–",
    ]
    assert "Ramachandran outliers" not in dict(cells)


def test_where_the_model_was_kept_what_the_simulation_made_of_it_is_told(result, summary, tmp_path):
    kept = result.keeping_before("a <worse> geometry")
    simulated = {"cc": 0.123, "q_score": 0.2, "ca_rmsd": 4.0, "geometry": {"bond_rmsz": 0.5}}
    for each in (
        kept,
        replace(kept, written=Written(tmp_path, {**summary, "simulated": simulated, "doubts": []})),
    ):
        outline = Outline(each._repr_html_())
        assert "before (kept)" in outline.text and "not kept: a <worse> geometry" in "".join(outline.text)
    assert "0.123" in outline.text and "No doubts." in outline.text
