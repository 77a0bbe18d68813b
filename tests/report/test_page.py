"""The page of texts and data that come from anywhere: shown as they are, by scripts that are ours alone."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib import resources

import pytest

from openmm_density.base.page_blocks import (
    Card,
    Command,
    Facts,
    Item,
    Items,
    Page,
    Plot,
    Residues,
    Section,
    Spot,
    Table,
    Text,
)
from openmm_density.report.page import SCRIPTS, embedded_json, page_text

WILD = "</script><script>alert('é')</script><img src=x onerror=\"alert(1)\"> & “Å” \u2028"


class Reader(HTMLParser):
    """Collects the scripts of a page and their attributes, its texts, and every attribute there is."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.scripts, self.texts, self.attributes, self._script = [], [], [], None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.attributes += [(tag, name, value) for name, value in attributes]
        if tag == "script":
            self._script = dict(attributes)
            self.scripts.append([self._script, ""])

    def handle_endtag(self, tag):
        if tag == "script":
            self._script = None

    def handle_data(self, data):
        if self._script is None:
            self.texts.append(data)
        else:
            self.scripts[-1][1] += data


def page(text):
    figure = {"data": [{"type": "scatter", "x": [0], "y": [1], "name": text}], "layout": {}}
    blocks = [
        Text(text),
        Table(text, [text], [(text, [text])]),
        Items(text, [Item(text, [Spot(text, [0])])], are_doubts=True),
        Plot("plot", text, text, figure),
        Plot("left-out", "nothing", "nothing", None),
        Facts([(text, text)]),
        Command(text),
        Residues(text),
    ]
    structures = {"atoms": [], "models": [], "film": None}
    data = {"residues": [{"residue": text}], "structures": structures, "surfaces": None}
    return Page(
        text, text, text, True, [Card(text, text, text)], [Section("one", text, blocks)], data, b"PNG"
    )


@pytest.fixture(scope="module")
def read():
    return Reader(page_text(page(WILD)))


def test_texts_are_shown_as_they_are(read):
    assert sum(WILD in text for text in read.texts) >= 14
    assert not [each for each in read.attributes if each[1].startswith("on")]
    captions = [value for _, name, value in read.attributes if name == "data-caption"]
    assert captions == [WILD]


def test_data_come_back_as_they_were(read):
    [[attributes, text]] = [each for each in read.scripts if each[0].get("type")]
    assert attributes == {"type": "application/json", "id": "data"}
    assert not set("<>&\u2028") & set(text)
    data = json.loads(text)
    assert data["residues"] == {"residue": [WILD]}
    assert list(data["figures"]) == ["plot"] and data["figures"]["plot"]["data"][0]["name"] == WILD


def test_only_our_scripts_may_run_and_nothing_is_loaded(read):
    [policy] = [
        value for tag, name, value in read.attributes if tag == "meta" and "default-src" in (value or "")
    ]
    assert policy.startswith("default-src 'none';") and "connect-src" not in policy and "http" not in policy
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    run = [text for attributes, text in read.scripts if not attributes]
    assert len(run) == len(SCRIPTS)
    digests = [hashlib.sha256(text.encode()).digest() for text in run]
    assert {base64.b64encode(digest).decode() for digest in digests} == allowed
    sources = [value for _, name, value in read.attributes if name in ("src", "href", "action")]
    assert all(value.startswith(("data:", "#")) for value in sources), sources


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_no_json(value):
    with pytest.raises(ValueError, match="JSON"):
        embedded_json([value])


def test_libraries_are_those_that_were_published():
    """By the digests of the files in the packages of the npm registry: 3dmol 2.5.5 and plotly.js-basic-dist-min 4.1.1."""
    folder = resources.files("openmm_density.report").joinpath("third_party")
    listed = [line.split() for line in folder.joinpath("SHA256SUMS").read_text().splitlines()]
    present = {each.name for each in folder.iterdir() if each.is_file()} - {"SHA256SUMS", "README.md"}
    assert {name for _, name in listed} == present
    for digest, name in listed:
        assert hashlib.sha256(folder.joinpath(name).read_bytes()).hexdigest() == digest, name
    licences = {name: folder.joinpath(name).read_text() for name in present if "LICENSE" in name}
    assert "Redistribution and use" in licences["3Dmol-LICENSE.txt"]
    assert "MIT License" in licences["plotly-LICENSE.txt"]
