"""Code in force field files, and what else these can do to who reads them."""

import re
from pathlib import Path

import pytest
from openmm import app

from openmm_density.base.errors import InputError
from openmm_density.models import prepare
from openmm_density.models.force_field_xml import files_read, is_shipped, load_force_field
from openmm_density.models.force_fields import FORCE_FIELDS, IMPLICIT_SOLVENTS, force_field_files

from ..fragments import fragment

INITIAL, LATER, EVALUATED = (
    "<InitializationScript>import pathlib; pathlib.Path({0!r}).touch()</InitializationScript>",
    "<Script>import pathlib; pathlib.Path({0!r}).touch()</Script>",
    '<NonbondedForce coulomb14scale="0.8333333333333334" lj14scale="0.5" '
    "useDispersionCorrection=\"__import__('pathlib').Path({0!r}).touch()\"/>",
)
SHIPPED = Path(app.__file__).parent / "data"


def written(path, body):
    path.write_text(f"<ForceField>{body}</ForceField>")
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return fragment(tmp_path_factory.mktemp("fragment") / "model.pdb", residues=5)


@pytest.mark.parametrize("code", [INITIAL, LATER, EVALUATED], ids=["when read", "in a System", "attribute"])
def test_code_in_a_force_field_runs_only_where_it_is_allowed(tmp_path, model, code):
    ran = tmp_path / "ran"
    path = written(tmp_path / "evil.xml", code.format(str(ran)))
    with pytest.raises(
        InputError, match=rf"^force field {re.escape(str(path))}: it holds Python code .*allow_scripts"
    ):
        prepare(model, ["amber14", path]).system()
    assert not ran.exists()
    prepare(model, ["amber14", path], allow_scripts=True).system()
    assert ran.exists()


def test_code_in_included_files_is_found(tmp_path, monkeypatch):
    ran = tmp_path / "ran"
    inner = tmp_path / "deep" / "inner"
    inner.mkdir(parents=True)
    first = written(tmp_path / "first.xml", '<Include file="deep/second.xml"/><Include file="first.xml"/>')
    second = written(tmp_path / "deep" / "second.xml", '<Include file="inner/third.xml"/>')
    third = written(inner / "third.xml", '<Include file="../second.xml"/><Include file="amber14/tip3p.xml"/>')
    assert files_read([first]) == [first, second, third]
    assert "HOH" in load_force_field([first])._templates
    # OpenMM looks for what is included beside who includes it, and then in the present folder.
    written(tmp_path / "elsewhere.xml", INITIAL.format(str(ran)))
    written(third, '<Include file="elsewhere.xml"/>')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"elsewhere\.xml: it holds Python code"):
        load_force_field([first])
    assert not ran.exists()
    written(third, '<Include file="nowhere.xml"/>')
    with pytest.raises(InputError, match=r"third\.xml, in an <Include>: .*nowhere\.xml.*no such file"):
        load_force_field([first])
    written(third, "<Include/>")
    with pytest.raises(InputError, match=r"third\.xml: an <Include> names no file"):
        load_force_field([first])


LAUGHS = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 12))
HOSTILE = {
    "it declares a document type": f'<!DOCTYPE f [<!ENTITY l0 "ha">{LAUGHS}]><ForceField>&l11;</ForceField>',
    "document type (<!DOCTYPE>)": '<!DOCTYPE f [<!ENTITY x SYSTEM "file:///etc/hostname">]><ForceField>&x;</ForceField>',
    "cannot be read (no element": "",
    "cannot be read (not well-formed": "MZ\x00\x01",
    "cannot be read (mismatched tag": "<ForceField><Residues></ForceField>",
    "cannot be read (unknown encoding": '<?xml version="1.0" encoding="made-up"?><ForceField/>',
    "it begins with <html>": "<html/>",
    "it holds Python code (<Script>)": f"<ForceField>{'<a>' * 3000}<Script/>{'</a>' * 3000}</ForceField>",
}


@pytest.mark.parametrize("said", HOSTILE)
def test_what_is_no_force_field_is_refused_in_a_sentence(tmp_path, said):
    path = tmp_path / "hostile.xml"
    path.write_text(HOSTILE[said])
    with pytest.raises(InputError, match=re.escape(said)) as refused:
        load_force_field([path])
    assert str(refused.value).startswith(f"force field {path}: ")


def test_what_openmm_brings_may_run_its_code():
    named = {*FORCE_FIELDS, "amber14/GLYCAM_06j-1.xml"}
    with_code = {
        path for name in named for path in force_field_files(name) if b"Script>" in path.read_bytes()
    }
    assert {path.name for path in with_code} == {"charmm36.xml", "water.xml", "GLYCAM_06j-1.xml"}
    assert all(is_shipped(path) for path in with_code)
    assert load_force_field(force_field_files("charmm36", "obc"))._scripts
    assert all(b"Script>" in (SHIPPED / name).read_bytes() for name in IMPLICIT_SOLVENTS.values())


def test_a_link_into_openmms_folder_is_openmms_and_a_copy_is_not(tmp_path):
    link, copy = tmp_path / "link.xml", tmp_path / "copy.xml"
    link.symlink_to(SHIPPED / "charmm36.xml")
    written(copy, LATER.format("anything"))
    assert is_shipped(link) and not is_shipped(copy)
    assert files_read([link, copy]) == [copy]


@pytest.mark.parametrize("name", FORCE_FIELDS)
def test_what_is_read_is_what_openmm_reads(name):
    ours, theirs = load_force_field(force_field_files(name)), app.ForceField(*FORCE_FIELDS[name])
    assert list(ours._templates) == list(theirs._templates) and ours._scripts == theirs._scripts
    assert list(ours._atomTypes) == list(theirs._atomTypes)
