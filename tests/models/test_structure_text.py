"""Numbers and names in PDB and mmCIF files that are none."""

import gemmi
import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.models import read_model
from openmm_density.models.structure_files import write_pdb
from openmm_density.models.trajectory_files import load_trajectory

from ..fragments import write_fragment

ATOM = "atom A MET 1 CA"


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = write_fragment(tmp_path_factory.mktemp("texts") / "model.pdb", residues=4)
    return path.read_text(), gemmi.read_structure(str(path)).make_mmcif_document().as_string()


@pytest.fixture
def pdb(texts, tmp_path):
    (tmp_path / "model.pdb").write_text(texts[0])
    return tmp_path / "model.pdb"


@pytest.fixture
def cif(texts, tmp_path):
    (tmp_path / "model.cif").write_text(texts[1])
    return tmp_path / "model.cif"


def refused(path):
    with pytest.raises(InputError) as caught:
        read_model(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    return message.removeprefix(f"{path}: ")


def alpha_carbon(path):
    lines = path.read_text().splitlines()
    return lines, next(n for n, line in enumerate(lines) if line.startswith("ATOM") and " CA " in line)


@pytest.mark.parametrize("value", ["   nan", "   inf", " 1e39 ", "******", "12.x4 ", "1_0.00", "1 0.00"])
@pytest.mark.parametrize(("what", "start"), [("an occupancy", 54), ("a B factor", 60)])
def test_pdb_numbers_that_are_none_are_refused_by_atom(pdb, what, start, value):
    lines, n = alpha_carbon(pdb)
    lines[n] = lines[n][:start] + value + lines[n][start + 6 :]
    pdb.write_text("\n".join(lines))
    message = refused(pdb)
    assert message.startswith(
        f"line {n + 1}, {ATOM}, has {what} that is not a number ({value.strip()!r} in columns"
    )


@pytest.mark.parametrize("value", ["  1.0e30", "     inf", "1.5x    ", "  0x10  "])
def test_pdb_coordinates_that_are_none_are_refused_by_atom(pdb, value):
    lines, n = alpha_carbon(pdb)
    lines[n] = lines[n][:38] + value + lines[n][46:]
    pdb.write_text("\n".join(lines))
    assert refused(pdb).startswith(f"line {n + 1}, {ATOM}, has a coordinate that is not a number")


def test_pdb_coordinates_beyond_all_bounds(pdb):
    lines, n = alpha_carbon(pdb)
    lines[n] = lines[n][:38] + "98765432" + lines[n][46:]
    pdb.write_text("\n".join(lines))
    assert refused(pdb).startswith(f"line {n + 1}, {ATOM}, has a coordinate beyond 1e+06 ('98765432'")


def test_a_pdb_file_without_occupancies_and_b_factors_is_read(pdb):
    whole = read_model(pdb)
    lines = [line[:54] + " " * 12 + line[66:] for line in pdb.read_text().splitlines() if "ATOM" in line]
    pdb.write_text("\n".join(lines))
    np.testing.assert_array_equal(read_model(pdb).positions, whole.positions)


@pytest.mark.parametrize("start", [12, 16, 17, 21, 26, 72, 78])
@pytest.mark.parametrize("strange", [b"\xe9", "é".encode(), b"\x00", b"\x1c"])
def test_strange_bytes_in_pdb_columns_are_refused_by_line(pdb, start, strange):
    contents = pdb.read_bytes().split(b"\n")
    n = next(n for n, line in enumerate(contents) if line.startswith(b"ATOM") and b" CA " in line)
    contents[n] = contents[n][:start] + strange + contents[n][start + 1 :]
    pdb.write_bytes(b"\n".join(contents))
    assert refused(pdb).startswith(f"line {n + 1} has characters that a PDB file cannot have in an atom (")


def test_strange_bytes_elsewhere_in_a_pdb_file_do_no_harm(pdb):
    whole = read_model(pdb)
    records = [
        "REMARK   1 Ängström",
        "TITLE     é",
        "LINK         SÉ  CYS A   1                 C   LIG É   2",
    ]
    text = pdb.read_text()
    for encoding in ("latin-1", "utf-8"):
        pdb.write_bytes("\n".join([*records, text]).encode(encoding))
        np.testing.assert_array_equal(read_model(pdb).positions, whole.positions)


@pytest.mark.parametrize("value", ["nan", "inf", "1e39", "?x", "12.x4", "1e400", "-2e6"])
@pytest.mark.parametrize("name", ["Cartn_x", "Cartn_z", "occupancy", "B_iso_or_equiv"])
def test_mmcif_numbers_that_are_none_are_refused_by_atom(cif, name, value):
    document = gemmi.cif.read(str(cif))
    rows = document[0].find("_atom_site.", ["label_atom_id", name])
    next(row for row in rows if row[0] == "CA")[1] = value
    document.write_file(str(cif))
    what = {"occupancy": "an occupancy", "B_iso_or_equiv": "a B factor"}.get(name, "a coordinate")
    says = "beyond 1e+06" if value in ("1e39", "-2e6") else "that is not a number"
    assert refused(cif).startswith(f"{ATOM}, has {what} {says} ({value} in {name})")


@pytest.mark.parametrize(
    ("name", "fine"), [("Cartn_y", False), ("occupancy", True), ("B_iso_or_equiv", True)]
)
@pytest.mark.parametrize("value", ["?", "."])
def test_only_coordinates_must_be_known(cif, name, fine, value):
    document = gemmi.cif.read(str(cif))
    rows = document[0].find("_atom_site.", ["label_atom_id", name])
    next(row for row in rows if row[0] == "CA")[1] = value
    document.write_file(str(cif))
    if fine:
        model = read_model(cif)
        assert np.isfinite(model.b_factors).all() and np.isfinite(model.occupancies).all()
    else:
        assert refused(cif).startswith(f"{ATOM}, has a coordinate that is not a number")


@pytest.mark.parametrize("name", ["label_alt_id", "label_atom_id"])
def test_strange_characters_in_mmcif_names_are_refused(cif, name):
    document = gemmi.cif.read(str(cif))
    document[0].find_loop(f"_atom_site.{name}")[2] = "'é'"
    document.write_file(str(cif))
    assert refused(cif).startswith(
        """_atom_site has characters that an mmCIF file cannot have in it ("'\\xe9'")"""
    )


def test_authors_may_have_any_name_in_mmcif(cif):
    whole = read_model(cif)
    cif.write_text(cif.read_text() + "_citation_author.name 'Ångström, É.'\n")
    np.testing.assert_array_equal(read_model(cif).positions, whole.positions)


def test_an_unbalanced_quote_in_mmcif(cif):
    cif.write_text(cif.read_text() + "_entry.title 'it ends nowhere\n")
    assert refused(cif).startswith("cannot be read as mmCIF (line ") and "unterminated" in refused(cif)


def test_numbers_of_further_models_count_where_these_are_read(pdb):
    lines, n = alpha_carbon(pdb)
    atoms = [line for line in lines if line.startswith("ATOM")]
    n -= lines.index(atoms[0])
    second = [*atoms]
    second[n] = second[n][:38] + "     nan" + second[n][46:]
    pdb.write_text(
        "\n".join(["MODEL        1", *atoms, "ENDMDL", "MODEL        2", *second, "ENDMDL", "END"])
    )
    assert len(read_model(pdb).records) == len(atoms)
    with pytest.raises(InputError, match=f"{ATOM}, has a coordinate that is not a number"):
        load_trajectory(pdb)


def test_an_old_file_has_line_numbers_where_charges_are_now(pdb, tmp_path):
    """As of before 1996: the entry and the number of the line in columns 73-80."""
    lines = [line for line in pdb.read_text().splitlines() if line.startswith("ATOM")]
    old = [f"{line[:72]}1GDR{100 + k:4d}" for k, line in enumerate(lines)]
    (tmp_path / "old.pdb").write_text(
        "\n".join([*old, f"TER      99      {old[-1][17:27]:<55}1GDR 190", "END", ""])
    )
    model, expected = read_model(tmp_path / "old.pdb"), read_model(pdb)
    np.testing.assert_array_equal(model.positions, expected.positions)
    assert [(r.element, r.charge, r.segment) for r in model.records] == [
        (r.element, 0, "") for r in expected.records
    ]
    write_pdb(tmp_path / "new.pdb", model, model.positions + 1.0)
    written = [x for x in (tmp_path / "new.pdb").read_text().splitlines() if x.startswith("ATOM")]
    assert [line[66:].split() for line in written] == [[r.element] for r in expected.records]
    # A charge is one.
    charged = [*lines[:-1], f"{lines[-1][:72]}1GDR{lines[-1][76:78]}1-"]
    (tmp_path / "charged.pdb").write_text("\n".join([*charged, "END", ""]))
    last = read_model(tmp_path / "charged.pdb").records[-1]
    assert (last.charge, last.segment) == (-1, "1GDR")
