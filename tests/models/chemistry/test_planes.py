"""Which atoms of a model are flat: against atom names written out from the chemistry, and against real models."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from openmm.app import Element, ForceField, Topology
from openmm.app import topology as bond_types

from openmm_density.base.errors import InputError
from openmm_density.models import read_model
from openmm_density.models.chemistry.planes import PlaneSet, find_planes

# Everything flat in a residue's side chain, each group with the kind it is reported as.
SIDE_CHAINS = {name: {} for name in ("ALA", "CYS", "GLY", "ILE", "LEU", "LYS", "MET", "PRO", "SER", "THR", "VAL")} | {
    "ARG": {"guanidinium": "CD NE HE CZ NH1 HH11 HH12 NH2 HH21 HH22"},
    "ASN": {"side chain": "CB CG OD1 ND2 HD21 HD22"},
    "ASP": {"carboxylate": "CB CG OD1 OD2"},
    "GLN": {"side chain": "CG CD OE1 NE2 HE21 HE22"},
    "GLU": {"carboxylate": "CG CD OE1 OE2"},
    "HIS": {"ring": "CB CG ND1 HD1 CE1 HE1 NE2 HE2 CD2 HD2"},
    "PHE": {"ring": "CB CG CD1 HD1 CE1 HE1 CZ HZ CE2 HE2 CD2 HD2"},
    "TRP": {"ring": "CB CG CD1 HD1 NE1 HE1 CE2 CZ2 HZ2 CH2 HH2 CZ3 HZ3 CE3 HE3 CD2"},
    "TYR": {"ring": "CB CG CD1 HD1 CE1 HE1 CZ OH CE2 HE2 CD2 HD2"},
}  # fmt: skip

SYNONYMS = {"HID": "HIS", "HIE": "HIS", "HIP": "HIS", "HSD": "HIS", "HSE": "HIS", "HSP": "HIS", "ASH": "ASP"}

SYNONYMS |= {"GLH": "GLU", "CYX": "CYS", "CYM": "CYS", "LYN": "LYS", "HYP": "PRO"}

BASES = {
    "A": "C1' N9 C8 H8 N7 C5 C6 N6 H61 H62 N1 C2 H2 N3 C4",
    "G": "C1' N9 C8 H8 N7 C5 C6 O6 N1 H1 C2 N2 H21 H22 N3 C4",
    "C": "C1' N1 C2 O2 N3 C4 N4 H41 H42 C5 H5 C6 H6",
    "U": "C1' N1 C2 O2 N3 H3 C4 O4 C5 H5 C6 H6",
    "DA": "C1' N9 C8 H8 N7 C5 C6 N6 H61 H62 N1 C2 H2 N3 C4",
    "DG": "C1' N9 C8 H8 N7 C5 C6 O6 N1 H1 C2 N2 H21 H22 N3 C4",
    "DC": "C1' N1 C2 O2 N3 C4 N4 H41 H42 C5 H5 C6 H6",
    "DT": "C1' N1 C2 O2 N3 H3 C4 O4 C5 C7 C6 H6",
}

HAEM_PYRROLES = (
    "NA C1A C2A C3A C4A CHA CHB CAA CMA",
    "NB C1B C2B C3B C4B CHB CHC CMB CAB",
    "NC C1C C2C C3C C4C CHC CHD CMC CAC",
    "ND C1D C2D C3D C4D CHD CHA CMD CAD",
)

HAEM_CARBOXYLATES = ("CBA CGA O1A O2A", "CBD CGD O1D O2D")

MODELS = (
    "xray_1g8a_P21/1G8A_refined.pdb",
    "xraymap_3pqr_R32/3pqr.pdb",
    "emd3488_5ni1/5ni1_updated.cif",
    "emd5925_frag/5925_native.pdb",
    "emd6187_kinesin/1bg2_K_fitted.pdb",
    "emd6374_frag/6374_native.pdb",
    "emd21457_ntd/6vyb_Ndom.pdb",
    "qr_6i5a/6i5a_box_complete.pdb",
)

ELEMENTS_OF_TWO_LETTERS = ("FE", "CL", "BR", "SE", "MG", "ZN")


def element_of(name):
    letters = name.lstrip("0123456789")
    return letters[:2] if letters in ELEMENTS_OF_TWO_LETTERS else letters[0]


def build(residues, bonds=(), chain="A"):
    """Make a topology from (name, atom names) or (name, atom names, id, insertion code), and bonds as pairs of
    (residue, atom name).
    """
    topology = Topology()
    strand = topology.addChain(chain)
    atoms = defaultdict(dict)
    for number, (name, members, *place) in enumerate(residues):
        residue = topology.addResidue(name, strand, *(place or [str(number + 1)]))
        for member in members.split():
            atoms[number][member] = topology.addAtom(
                member, Element.getBySymbol(element_of(member).capitalize()), residue
            )
    for (r, a), (s, b) in bonds:
        topology.addBond(atoms[r][a], atoms[s][b])
    return topology


def molecule(text, orders=None, name="LIG"):
    """Make a one-residue topology from ``C1-C2 C2=O1``: bonds between named atoms, ``=`` ignored unless asked."""
    pairs = [(bond.replace("=", "-").split("-"), "=" in bond) for bond in text.split()]
    names = dict.fromkeys(atom for pair, _ in pairs for atom in pair)
    topology = build([(name, " ".join(names))])
    atoms = {atom.name: atom for atom in topology.atoms()}
    for (a, b), double in pairs:
        kind = (bond_types.Double if double else bond_types.Single) if orders else None
        topology.addBond(atoms[a], atoms[b], kind)
    return topology


def named(planes, topology, kind=None):
    """Return planes as sorted atom names, each as a frozenset."""
    names = [atom.name for atom in topology.atoms()]
    return {frozenset(names[a] for a in plane.atoms) for plane in planes if kind in (None, plane.kind)}


def sets(*texts):
    return {frozenset(text.split()) for text in texts}


def heavy(planes, topology):
    """Return the planes without their hydrogens."""
    symbols = [atom.element.symbol for atom in topology.atoms()]
    kept = [(plane, tuple(a for a in plane.atoms if symbols[a] != "H")) for plane in planes.planes]
    return PlaneSet(tuple(replace(plane, atoms=atoms) for plane, atoms in kept if len(atoms) >= 4))


@pytest.fixture(scope="session")
def templates():
    """Full atom names and bonds of residues from the force fields: names that this package did not write."""

    def read(*files):
        return ForceField(*files)._templates

    return {"amber": read("amber14-all.xml"), "charmm": read("charmm36.xml")}


def template_topology(template, name):
    topology = Topology()
    residue = topology.addResidue(name, topology.addChain("A"), "1")
    atoms = [topology.addAtom(atom.name, atom.element, residue) for atom in template.atoms]
    for a, b in template.bonds:
        topology.addBond(atoms[a], atoms[b])
    return topology


AMBER = sorted((set(SIDE_CHAINS) - {"HIS"}) | (set(SYNONYMS) - {"HSD", "HSE", "HSP"}))

CHARMM = sorted((set(SIDE_CHAINS) - {"HIS"}) | {"HSD", "HSE", "HSP"})


@pytest.mark.parametrize(
    ("source", "name"), [("amber", name) for name in AMBER] + [("charmm", name) for name in CHARMM]
)
def test_side_chains_of_the_force_fields_residues(templates, source, name):
    template = templates[source][name]
    topology = template_topology(template, name)
    planes = find_planes(topology)
    present = {atom.name for atom in template.atoms}
    expected = {
        kind: frozenset(atoms.split()) & present
        for kind, atoms in SIDE_CHAINS[SYNONYMS.get(name, name)].items()
    }
    assert {
        plane.kind: frozenset(next(iter(named([plane], topology)))) for plane in planes.planes
    } == expected
    assert [plane.kind for plane in planes.dropped] == ["terminus"]


@pytest.mark.parametrize("name", sorted(BASES))
def test_bases_of_the_force_fields_nucleotides(templates, name):
    for end in ("", "5", "3", "N"):
        topology = template_topology(templates["amber"][name + end], name + end)
        planes = find_planes(topology)
        assert [plane.kind for plane in planes.planes] == ["base"] and not planes.dropped
        assert named(planes.planes, topology) == sets(BASES[name])


BACKBONE = "N H CA HA C O CB"

GLYCINES = [
    ("GLY", "N H CA C O"),
    ("ALA", BACKBONE),
    ("PRO", "N CA C O CB CG CD"),
    ("ALA", BACKBONE + " OXT"),
]

JOINED = [((r, "C"), (r + 1, "N")) for r in range(3)]


def test_peptide_groups_and_termini():
    topology = build(GLYCINES, JOINED)
    planes = find_planes(topology)
    atoms = [f"{atom.residue.id}{atom.name}" for atom in topology.atoms()]
    found = [(plane.kind, plane.residue, [atoms[a] for a in plane.atoms]) for plane in planes.planes]
    assert found == [
        ("peptide", "A GLY 1", ["1CA", "1C", "1O", "2N", "2CA", "2H"]),
        ("peptide", "A ALA 2", ["2CA", "2C", "2O", "3N", "3CA", "3CD"]),
        ("peptide", "A PRO 3", ["3CA", "3C", "3O", "4N", "4CA", "4H"]),
        ("terminus", "A ALA 4", ["4CA", "4C", "4O", "4OXT"]),
    ]
    assert planes.dropped == ()
    assert planes.by_residue() == {
        "ALA": {"peptide": 1, "terminus": 1},
        "GLY": {"peptide": 1},
        "PRO": {"peptide": 1},
    }


@pytest.mark.parametrize(
    ("last", "members"),
    [
        ("ALA", "CA C OT1 OT2"),
        ("GLY", "CA C OC1 OC2"),
        ("ALA", "CA C O NT HT1 HT2"),
        ("ALA", "CA C O NT HNT CAT"),
    ],
)
def test_termini_under_other_programs_names(last, members):
    topology = build([(last, "N HN HA CB " + members)])
    assert named(find_planes(topology).planes, topology, "terminus") == sets(members)


def test_caps_and_formyl():
    topology = build(
        [("ACE", "CH3 C O"), ("ALA", BACKBONE), ("NME", "N H CH3")],
        [((0, "C"), (1, "N")), ((1, "C"), (2, "N"))],
    )
    assert named(find_planes(topology).planes, topology) == sets("CH3 C O N H CA", "CA C O N H CH3")
    topology = build([("ALA", BACKBONE), ("NH2", "N HN1 HN2")], [((0, "C"), (1, "N"))])
    assert named(find_planes(topology).planes, topology) == sets("CA C O N HN1 HN2")
    topology = build([("FME", "N H CN O1 CA CB C O"), ("ALA", BACKBONE)], [((0, "C"), (1, "N"))])
    assert named(find_planes(topology).planes, topology) == sets("CA N CN O1 H", "CA C O N H")
    topology = build([("ALA", "CAY CY OY N HN CA CB C O NT HNT CAT")])
    assert named(find_planes(topology).planes, topology) == sets("CAY CY OY N HN CA", "CA C O NT HNT CAT")


@pytest.mark.parametrize(
    ("name", "atoms", "expected"),
    [
        ("MSE", "N CA C O CB CG SE CE", ()),
        ("SEP", "N CA C O CB OG P O1P O2P O3P", ()),
        ("TPO", "N CA C O CB CG2 OG1 P O1P O2P O3P", ()),
        ("HYP", "N CA C O CB CG CD OD1", ()),
        ("M3L", "N CA C O CB CG CD CE NZ CM1 CM2 CM3", ()),
        ("CSO", "N CA C O CB SG OD", ()),
        ("PTR", "N CA C O CB CG CD1 CD2 CE1 CE2 CZ OH P O1P O2P O3P", ("CB CG CD1 CD2 CE1 CE2 CZ OH",)),
        ("PCA", "N H CA CB CG CD OE C O", ("CA N H CD OE CG",)),
        ("KCX", "N CA C O CB CG CD CE NZ CX OQ1 OQ2", ("CE NZ CX OQ1 OQ2",)),
        ("PSU", "C1' C2' C3' C4' O4' N1 C2 N3 C4 C5 C6 O2 O4", ("C1' C5 C4 O4 N3 C2 O2 N1 C6",)),
        ("5MC", "C1' C2' C3' C4' N1 C2 O2 N3 C4 N4 C5 C6 CM5", ("C1' N1 C2 O2 N3 C4 N4 C5 C6 CM5",)),
        ("OMC", "C1' C2' C3' C4' CM2 N1 C2 O2 N3 C4 N4 C5 C6", ("C1' N1 C2 O2 N3 C4 N4 C5 C6",)),
        ("OMG", "C1' C2' CM2 N9 C8 N7 C5 C6 O6 N1 C2 N2 N3 C4", ("C1' N9 C8 N7 C5 C6 O6 N1 C2 N2 N3 C4",)),
        ("2MG", "C1' N9 C8 N7 C5 C6 O6 N1 C2 N2 CM2 N3 C4", ("C1' N9 C8 N7 C5 C6 O6 N1 C2 N2 CM2 N3 C4",)),
        ("H2U", "C1' N1 C2 O2 N3 C4 O4 C5 C6", ("C1' N1 C2 O2 N3 C6", "C2 N3 C4 O4 C5")),
        ("A", "C1* N9 C8 N7 C5 C6 N6 1H6 2H6 N1 C2 N3 C4", ("C1* N9 C8 N7 C5 C6 N6 1H6 2H6 N1 C2 N3 C4",)),
        ("ARG", "CD NE DE CZ NH1 1DH1 2DH1 NH2 1DH2 2DH2", ("CD NE DE CZ NH1 1DH1 2DH1 NH2 1DH2 2DH2",)),
    ],
)
def test_modified_residues_and_old_names(name, atoms, expected):
    topology = build([(name, atoms)])
    assert named((p for p in find_planes(topology).planes if p.kind != "terminus"), topology) == sets(
        *expected
    )


def test_no_peptide_plane_across_a_gap_or_between_chains():
    topology = build(GLYCINES[:2], JOINED[:1])
    coordinates = np.zeros((topology.getNumAtoms(), 3))
    coordinates[5:, 0] = 1.33
    coordinates[:, 1] = np.arange(len(coordinates)) * 0.01
    joined = find_planes(topology, coordinates)
    assert [plane.kind for plane in joined.planes] == ["peptide"]
    coordinates[5:, 0] = 4.5
    gap = find_planes(topology, coordinates)
    assert gap.planes == ()
    assert [(p.kind, p.residue) for p in gap.dropped] == [("terminus", "A GLY 1"), ("terminus", "A ALA 2")]
    unlisted = build([*GLYCINES[:2], ("HOH", "O")], [((0, "CA"), (0, "C"))])
    coordinates = np.vstack([coordinates, [[90.0, 0.0, 0.0]]])
    assert find_planes(unlisted, coordinates).planes == ()
    coordinates[5:10, 0] = 1.4
    assert [plane.kind for plane in find_planes(unlisted, coordinates).planes] == ["peptide"]
    assert find_planes(unlisted).planes == ()


def test_neither_bonds_nor_positions():
    with pytest.raises(InputError, match="neither bonds nor positions"):
        find_planes(build(GLYCINES))


def test_insertion_codes_and_alternate_residues():
    residues = [("ALA", BACKBONE, "52", ""), ("ALA", BACKBONE, "52", "A"), ("GLY", "N H CA C O", "53", "")]
    topology = build(residues, [((0, "C"), (1, "N")), ((1, "C"), (2, "N"))])
    assert [plane.residue for plane in find_planes(topology).planes] == ["A ALA 52", "A ALA 52A"]
    residues = [("ALA", BACKBONE, "9", ""), ("SER", BACKBONE, "10", ""), ("THR", BACKBONE, "10", "")]
    topology = build(residues, [((0, "C"), (1, "N")), ((0, "C"), (2, "N")), ((1, "C"), (2, "N"))])
    atoms = [f"{atom.residue.name}{atom.name}" for atom in topology.atoms()]
    assert [[atoms[a] for a in plane.atoms[3:]] for plane in find_planes(topology).planes] == [
        ["SERN", "SERCA", "SERH"],
        ["THRN", "THRCA", "THRH"],
    ]


def test_alternate_locations_get_a_plane_each():
    topology = build_repeated("ASP", ["N", "CA", "C", "O", "OXT", "CB", "CG", "OD1", "OD1", "OD2", "OD2"])
    planes = find_planes(topology).planes
    assert [plane.atoms for plane in planes if plane.kind == "carboxylate"] == [(5, 6, 7, 9), (5, 6, 8, 10)]
    assert [plane.atoms for plane in planes if plane.kind == "terminus"] == [(1, 2, 3, 4)]


def build_repeated(name, atoms):
    topology = Topology()
    residue = topology.addResidue(name, topology.addChain("A"), "1")
    for atom in atoms:
        topology.addAtom(atom, Element.getBySymbol(element_of(atom)), residue)
    return topology


def test_planes_of_fewer_than_four_atoms_are_dropped_and_counted():
    topology = build(
        [("PHE", "N CA C O CB CG CD1"), ("ARG", "N CA C O OXT CB CG CD NE CZ NH1")], [((0, "C"), (1, "N"))]
    )
    planes = find_planes(topology)
    assert [(p.kind, p.residue) for p in planes.dropped] == [("ring", "A PHE 1")]
    assert named(planes.planes, topology) == sets("CA C O N", "CD NE CZ NH1", "CA C O OXT")


def test_isopeptide_bond_glycosylation_and_disulphide():
    lysine = "N CA C O OXT CB CG CD CE NZ HZ1"
    topology = build(
        [("GLY", "N CA C O"), ("LYS", lysine)],
        [((0, "C"), (1, "NZ")), ((1, "NZ"), (1, "CE")), ((1, "NZ"), (1, "HZ1"))],
    )
    assert named(find_planes(topology).planes, topology, "peptide") == sets("CA C O NZ CE HZ1")
    sugar = "C1 C2 C3 C4 C5 C6 O3 O4 O5 O6 N2 C7 C8 O7"
    inside = "C1-C2 C2-C3 C3-C4 C4-C5 C5-C6 C3-O3 C4-O4 C5-O5 C6-O6 O5-C1 C2-N2 N2-C7 C7-C8 C7-O7"
    bonds = [((1, a), (1, b)) for a, b in (pair.split("-") for pair in inside.split())]
    topology = build(
        [("ASN", "N CA C O OXT CB CG OD1 ND2 HD21"), ("NAG", sugar)], [((0, "ND2"), (1, "C1")), *bonds]
    )
    planes = find_planes(topology)
    assert named(planes.planes, topology) == sets("CB CG OD1 ND2 HD21 C1", "C2 N2 C7 C8 O7", "CA C O OXT")
    assert planes.undetermined == ("A NAG 2",)
    topology = build([("CYX", "N CA C O CB SG"), ("CYX", "N CA C O CB SG")], [((0, "SG"), (1, "SG"))])
    assert find_planes(topology).planes == ()


FULL_RINGS = {
    "benzene": ("C1-C2 C2-C3 C3-C4 C4-C5 C5-C6 C6-C1 C1-H1 C2-H2 C3-H3 C4-H4 C5-H5 C6-H6", 1),
    "cyclohexane": (
        "C1-C2 C2-C3 C3-C4 C4-C5 C5-C6 C6-C1 "
        + " ".join(f"C{k}-H{k}A C{k}-H{k}B" for k in range(1, 7)),
        0,
    ),
    "pyrrolidine": ("N1-C2 C2-C3 C3-C4 C4-C5 C5-N1 N1-H1 " + " ".join(f"C{k}-H{k}A C{k}-H{k}B" for k in (2, 3, 4, 5)), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(FULL_RINGS))
def test_rings_with_hydrogens_and_no_positions(name):
    text, count = FULL_RINGS[name]
    topology = molecule(text)
    planes = find_planes(topology)
    assert len(planes.planes) == count
    if count:
        assert len(planes.planes[0].atoms) == topology.getNumAtoms()


def test_butadiene_has_its_double_bonds_flat_and_can_turn_between_them():
    text = "C1-C2 C2-C3 C3-C4 C1-H1A C1-H1B C2-H2 C3-H3 C4-H4A C4-H4B"
    topology = molecule(text)
    expected = sets("C1 H1A H1B C2 H2 C3", "C2 C3 H3 C4 H4A H4B")
    assert named(find_planes(topology).planes, topology) == expected


@pytest.mark.parametrize(("bridges", "count"), [("S N", 2), ("O O", 2), ("C N", 3)])
def test_six_membered_rings_of_eight_electrons_fold(bridges, count):
    """Phenothiazine and dibenzodioxin fold along their bridges, acridone does not: outer rings, and the middle."""
    top, bottom = (f"{element}{k}" for element, k in zip(bridges.split(), (91, 92)))
    rings = " ".join(
        f"C{k}1=C{k}2 C{k}2-C{k}3 C{k}3=C{k}4 C{k}4-C{k}5 C{k}5=C{k}6 C{k}6-C{k}1 C{k}1-{top} C{k}6-{bottom}"
        f" C{k}2-H{k}2 C{k}3-H{k}3 C{k}4-H{k}4 C{k}5-H{k}5"
        for k in (1, 2)
    )
    rings += " N92-H92" if bottom == "N92" else ""
    rings += " C91=O91" if top == "C91" else ""
    for orders in (False, True):
        planes = find_planes(molecule(rings, orders)).planes
        ring_planes = [plane for plane in planes if len(plane.atoms) > 8]
        assert len(ring_planes) == count


def test_bond_orders_tell_where_hydrogens_are_missing():
    ring = "C1=C2 C2-C3 C3=C4 C4-C5 C5=C6 C6-C1"
    assert find_planes(molecule(ring)).undetermined == ("A LIG 1",)
    planes = find_planes(molecule(ring, orders=True))
    assert len(planes.planes) == 1 and planes.undetermined == ()
    assert find_planes(molecule(ring.replace("=", "-"), orders=True)).planes == ()


@pytest.mark.parametrize("name", MODELS)
def test_every_residue_of_a_real_model_has_its_planes_and_no_other(small_data, name):
    model = read_model(small_data / name)
    planes = find_planes(model.topology, model.positions)
    names = [atom.name for atom in model.topology.atoms()]
    residues = {residue.index: residue for residue in model.topology.residues()}
    found = defaultdict(list)
    owner = [atom.residue.index for atom in model.topology.atoms()]
    for plane in planes.planes:
        kinds = {"peptide", "terminus"}
        if plane.kind not in kinds:
            found[owner[plane.atoms[0]]].append(plane)
        else:
            assert {names[a] for a in plane.atoms} <= {"CA", "C", "O", "N", "H", "CD", "OXT"}
    checked = 0
    for index, residue in residues.items():
        expected = SIDE_CHAINS.get(SYNONYMS.get(residue.name, residue.name))
        if expected is None:
            continue
        checked += 1
        present = {atom.name for atom in residue.atoms()}
        wanted = {kind: frozenset(atoms.split()) & present for kind, atoms in expected.items()}
        wanted = {kind: atoms for kind, atoms in wanted.items() if len(atoms) >= 4}
        got = {
            p.kind: frozenset(names[a] for a in p.atoms if owner[a] == index) for p in found.pop(index, [])
        }
        assert got == wanted, residue
    assert checked > 70
    assert planes.undetermined == ()
    assert {residues[index].name for index in found} <= {"HEM", "RET", "NAG", "PLM", "ACT", "ADP"}
    assert len({frozenset(plane.atoms) for plane in planes.planes}) == len(planes.planes)


@pytest.mark.parametrize("name", MODELS)
def test_one_peptide_plane_for_each_bond_between_residues(small_data, name):
    """Counted from the positions alone: backbone C and N closer than 2 Å."""
    model = read_model(small_data / name)
    coordinates = np.asarray(model.positions)
    carbons = [
        atom.index for atom in model.topology.atoms() if atom.name == "C" and atom.residue.name in SIDE_CHAINS
    ]
    nitrogens = [atom.index for atom in model.topology.atoms() if atom.name == "N"]
    distances = np.linalg.norm(coordinates[carbons][:, None] - coordinates[nitrogens][None], axis=2)
    bonded = int((distances < 2.0).sum())
    planes = find_planes(model.topology, model.positions)
    ends = [plane for plane in (*planes.planes, *planes.dropped) if plane.kind == "terminus"]
    peptides = [plane for plane in planes.planes if plane.kind == "peptide"]
    assert len(peptides) == bonded
    assert len(peptides) + len(ends) == len(carbons)


# median and largest RMS deviation (Å) of the heavy atoms of each kind of plane in the 1.23 Å structure 1G8A
IN_1G8A = {
    "carboxylate": (0.006, 0.02),
    "guanidinium": (0.017, 0.05),
    "peptide": (0.03, 0.13),
    "ring": (0.017, 0.04),
    "side chain": (0.003, 0.015),
    "terminus": (0.003, 0.004),
}


def test_an_atomic_resolution_structure_is_flat(small_data):
    model = read_model(small_data / "xray_1g8a_P21/1G8A_refined.pdb")
    planes = heavy(find_planes(model.topology, model.positions), model.topology)
    rms = planes.deviations(model.positions).rms
    kinds = np.array([plane.kind for plane in planes.planes])
    assert set(kinds) == set(IN_1G8A)
    for kind, (median, largest) in IN_1G8A.items():
        assert np.median(rms[kinds == kind]) < median
        assert rms[kinds == kind].max() < largest
    assert planes.rms(model.positions) < 0.034


@pytest.mark.parametrize("name", ["HEM", "XYZ"])
@pytest.mark.parametrize("model_name", ["emd3488_5ni1/5ni1_updated.cif", "emd3488_5ni1/5me2.pdb"])
def test_haem_is_flat_in_pieces(small_data, model_name, name):
    """By its name, and under a name that nobody knows from the lengths of its bonds."""
    model = read_model(small_data / model_name)
    rename(model.topology, "HEM", name)
    planes = find_planes(model.topology, model.positions)
    names = [atom.name for atom in model.topology.atoms()]
    haems = defaultdict(list)
    for plane in planes.planes:
        if plane.residue_name == name:
            haems[plane.residue].append(frozenset(names[a] for a in plane.atoms))
    assert len(haems) == 4
    for pieces in haems.values():
        assert sets(*HAEM_PYRROLES, *HAEM_CARBOXYLATES) <= set(pieces)
        methines = set(pieces) - sets(*HAEM_PYRROLES, *HAEM_CARBOXYLATES)
        assert len(pieces) == 14 and all(len(piece) == 5 for piece in methines)
        assert all(len(piece & {"CHA", "CHB", "CHC", "CHD"}) == 1 for piece in methines)
        assert not frozenset().union(*pieces) & {"FE", "CBB", "CBC"}


def rename(topology, old, new):
    for residue in topology.residues():
        if residue.name == old:
            residue.name = new


@pytest.mark.parametrize("hydrogens", [True, False])
@pytest.mark.parametrize("name", ["xray_1g8a_P21/1G8A_refined.pdb", "emd3488_5ni1/5ni1_updated.cif"])
def test_bond_lengths_alone_find_what_the_tables_say(small_data, name, hydrogens):
    """Every residue under a name of its own and without bonds: tryptophan alone differs, one plane for each ring."""
    model = read_model(small_data / name)
    topology, kept, labels = Topology(), [], {}
    for chain in model.topology.chains():
        copy = topology.addChain(chain.id)
        for residue in chain.residues():
            if residue.name == "HOH":
                continue
            stranger = topology.addResidue(f"X{residue.index}", copy, residue.id, residue.insertionCode)
            labels[stranger.name] = residue.name
            for atom in residue.atoms():
                if hydrogens or atom.element.symbol != "H":
                    topology.addAtom(atom.name, atom.element, stranger)
                    kept.append(atom.index)
    positions = np.asarray(model.positions)[kept]
    old_index = dict(enumerate(kept))
    known = find_planes(model.topology, model.positions)
    known = known if hydrogens else heavy(known, model.topology)
    expected = {frozenset(plane.atoms) for plane in known.planes}
    found = find_planes(topology, positions)
    differing = [p for p in found.planes if frozenset(old_index[a] for a in p.atoms) not in expected]
    assert {labels[plane.residue_name] for plane in differing} <= {"TRP"}
    tryptophans = sum(plane.residue_name == "TRP" and plane.kind == "ring" for plane in known.planes)
    assert len(differing) == 2 * tryptophans
    assert len(found.planes) == len(known.planes) + tryptophans
    assert found.undetermined == ()


def test_haem_is_found_when_it_is_not_flat(haemoglobin):
    noise = np.random.default_rng(3).normal(0.0, 0.3, (haemoglobin.topology.getNumAtoms(), 3))
    planes = find_planes(haemoglobin.topology, np.asarray(haemoglobin.positions) + noise)
    assert planes.by_residue()["HEM"] == {"ligand": 56}
    assert find_planes(haemoglobin.topology, haemoglobin.positions).by_residue() == planes.by_residue()


def test_retinal_bound_to_lysine(small_data):
    model = read_model(small_data / "xraymap_3pqr_R32/3pqr.pdb")
    planes = find_planes(model.topology, model.positions)
    assert named((p for p in planes.planes if p.residue_name == "RET"), model.topology) == sets(
        "C1 C4 C5 C6 C7 C18", "C6 C7 C8 C9", "C8 C9 C10 C11 C19", "C10 C11 C12 C13", "C12 C13 C14 C15 C20", "C14 C15 NZ CE"
    )  # fmt: skip
    assert named((p for p in planes.planes if p.residue_name == "PLM"), model.topology) == sets("C1 C2 O2 SG")
    assert not {"BOG", "TRE", "MAN", "BMA", "SO4"} & planes.by_residue().keys()


RESTRAINTS = """
data_comp_list
loop_
_chem_comp.id
_chem_comp.three_letter_code
LIG LIG
data_comp_LIG
loop_
_chem_comp_atom.comp_id
_chem_comp_atom.atom_id
_chem_comp_atom.type_symbol
_chem_comp_atom.type_energy
LIG C1 C CR6
LIG "C2'" C CR16
LIG C3 C CR16
LIG N4 N N
LIG O5 O O
LIG H6 H H
loop_
_chem_comp_bond.comp_id
_chem_comp_bond.atom_id_1
_chem_comp_bond.atom_id_2
_chem_comp_bond.type
_chem_comp_bond.aromatic
_chem_comp_bond.value_dist
_chem_comp_bond.value_dist_esd
LIG C1 "C2'" aromatic y 1.390 0.01
LIG "C2'" C3 double n 1.390 0.01
LIG C3 N4 single n 1.390 0.01
LIG N4 O5 single n 1.390 0.01
loop_
_chem_comp_plane_atom.comp_id
_chem_comp_plane_atom.plane_id
_chem_comp_plane_atom.atom_id
_chem_comp_plane_atom.dist_esd
LIG plan-1 C1 0.020
LIG plan-1 "C2'" 0.020
LIG plan-1 C3 0.020
LIG plan-1 N4 0.020
LIG plan-2 "C2'" 0.010
LIG plan-2 C3 0.020
LIG plan-2 N4 .
LIG plan-2 O5 0.050
LIG plan-2 H6 0.100
"""


def write(tmp_path, text, name="ligand.cif"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_planes_and_sigmas_of_a_restraint_dictionary(tmp_path):
    topology = build([("LIG", "O5 N4 C3 C2' C1"), ("HOH", "O")])
    planes = find_planes(topology, sigma=0.03, dictionaries=[write(tmp_path, RESTRAINTS)])
    assert [(plane.kind, plane.residue, plane.atoms, plane.sigma) for plane in planes.planes] == [
        ("ligand", "A LIG 1", (4, 3, 2, 1), 0.02),
        ("ligand", "A LIG 1", (3, 2, 1, 0), (0.01, 0.02, 0.03, 0.05)),
    ]
    ((indices, sigmas),) = planes.grouped()
    assert indices.dtype == np.int64 and indices.tolist() == [[4, 3, 2, 1], [3, 2, 1, 0]]
    np.testing.assert_array_equal(sigmas, [[0.02] * 4, [0.01, 0.02, 0.03, 0.05]])
    partial = find_planes(build([("LIG", "O5 N4 C3 C2'")]), dictionaries=write(tmp_path, RESTRAINTS))
    assert [plane.atoms for plane in partial.planes] == [(3, 2, 1, 0)]
    assert [plane.atoms for plane in partial.dropped] == [(3, 2, 1)]


def test_a_restraint_dictionary_overrides_the_tables_but_not_the_backbone(tmp_path):
    text = RESTRAINTS.replace("LIG", "PHE").replace('"C2\'"', "CG").replace("N4", "CD2").replace("C3", "CD1")
    text = text.replace("C1", "CB").replace("O5", "O").replace("CDCB", "CD1")
    text += "PHE plan-3 CA 0.02\nPHE plan-3 C 0.02\nPHE plan-3 O 0.02\nPHE plan-3 OXT 0.02\n"
    text = text.replace("PHE O O O", "PHE O O O\nPHE CA C C\nPHE C C C\nPHE OXT O O")
    topology = build(
        [("PHE", "N CA C O CB CG CD1 CD2 CE1 CE2 CZ"), ("GLY", "N CA C O OXT")], [((0, "C"), (1, "N"))]
    )
    planes = find_planes(topology, dictionaries=write(tmp_path, text))
    assert Counter(plane.kind for plane in planes.planes) == {"side chain": 2, "peptide": 1, "terminus": 1}
    assert frozenset(["CB", "CG", "CD1", "CD2"]) in named(planes.planes, topology)


def component_file(bonds, atoms, name="LIG"):
    """Write a wwPDB component: atoms by name, bonds as (atom, atom, order, aromatic)."""
    rows = [
        f"data_{name}",
        "#",
        "loop_",
        *(f"_chem_comp_atom.{tag}" for tag in ("comp_id", "atom_id", "type_symbol")),
    ]
    rows += [f"{name} {atom} {element_of(atom)}" for atom in atoms]
    tags = ("comp_id", "atom_id_1", "atom_id_2", "value_order", "pdbx_aromatic_flag", "pdbx_stereo_config")
    rows += ["#", "loop_", *(f"_chem_comp_bond.{tag}" for tag in tags)]
    rows += [f"{name} {a} {b} {order} {flag} N" for a, b, order, flag in bonds]
    return "\n".join(rows) + "\n"


TOLUIC_ACID = [
    *((f"C{k}", f"C{k % 6 + 1}", "DOUB" if k % 2 else "SING", "Y") for k in range(1, 7)),
    ("C1", "C7", "SING", "N"),
    ("C4", "C8", "SING", "N"),
    ("C8", "O1", "DOUB", "N"),
    ("C8", "O2", "SING", "N"),
    ("O2", "HO2", "SING", "N"),
    *((f"C{k}", f"H{k}", "SING", "N") for k in (2, 3, 5, 6)),
    *(("C7", f"H7{k}", "SING", "N") for k in "123"),
]


def test_a_wwpdb_component_gives_bond_orders(tmp_path):
    atoms = list(dict.fromkeys(atom for a, b, *_ in TOLUIC_ACID for atom in (a, b)))
    path = write(tmp_path, component_file(TOLUIC_ACID, atoms))
    topology = build([("LIG", "C1 C2 C3 C4 C5 C6 C7 C8 O1 O2")])
    assert find_planes(topology).undetermined == ("A LIG 1",)
    planes = find_planes(topology, dictionaries=path)
    assert named(planes.planes, topology) == sets("C1 C2 C3 C4 C5 C6 C7 C8", "C4 C8 O1 O2")
    assert planes.undetermined == () and planes.dropped == () and {p.sigma for p in planes.planes} == {0.02}
    topology = build([("LIG", " ".join(atoms))])
    assert named(find_planes(topology, dictionaries=path).planes, topology) == sets(
        "C1 C2 C3 C4 C5 C6 C7 C8 H2 H3 H5 H6", "C4 C8 O1 O2"
    )


def test_a_component_without_flat_groups_and_a_linked_one(tmp_path):
    bonds = [
        ("C1", "C2", "SING", "N"),
        ("C2", "O3", "DOUB", "N"),
        ("C2", "O4", "SING", "N"),
        ("O4", "H", "SING", "N"),
    ]
    path = write(tmp_path, component_file(bonds, ["C1", "C2", "O3", "O4", "H"]))
    topology = build([("LYS", "CD CE NZ"), ("LIG", "C1 C2 O3")], [((0, "NZ"), (1, "C2"))])
    assert named(find_planes(topology, dictionaries=path).planes, topology) == sets("C1 C2 O3 NZ")
    path = write(
        tmp_path, component_file([(a, b, "SING", "N") for a, b, *_ in bonds], ["C1", "C2", "O3", "O4", "H"])
    )
    assert find_planes(topology, dictionaries=path).planes == ()


def test_a_model_file_with_a_component_table_is_a_dictionary(small_data):
    path = small_data / "emd3488_5ni1/5ni1_updated.cif"
    model = read_model(path)
    haem = find_planes(model.topology, model.positions).by_residue()["HEM"]
    assert find_planes(model.topology, dictionaries=path).by_residue()["HEM"] == haem


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not a dictionary", "cannot be read as mmCIF"),
        (
            RESTRAINTS.replace("plan-1 C1 0.020", "plan-1 C1 0.000"),
            "dist_esd of atom C1 in plane plan-1 of LIG must be positive, found 0.000",
        ),
        (
            RESTRAINTS.replace("plan-1 C1 ", "plan-1 C9 "),
            "plane plan-1 must have atoms of LIG only, found C9",
        ),
        (RESTRAINTS.replace("_plane_atom.plane_id", "_plane_atom.group"), "lacks comp_id or plane_id"),
        (
            RESTRAINTS.replace("C1", "X1").replace("C3", "X3").replace("N4", "X4"),
            "its LIG lacks atoms .*found no N4, C3, C1",
        ),
    ],
)
def test_wrong_dictionaries(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as error:
        find_planes(build([("LIG", "O5 N4 C3 C2' C1")]), dictionaries=write(tmp_path, text))
    assert "ligand.cif" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("sigma", [0.0, -0.02, float("nan"), float("inf")])
def test_wrong_sigma(sigma):
    with pytest.raises(InputError, match="sigma"):
        find_planes(build(GLYCINES, JOINED), sigma=sigma)


def test_positions_of_another_model():
    topology = build(GLYCINES, JOINED)
    with pytest.raises(InputError, match="positions must be one for each of the"):
        find_planes(topology, np.zeros((3, 3)))
    with pytest.raises(InputError, match="positions of the topology"):
        find_planes(topology).deviations(np.zeros((3, 3)))


def test_deviations_against_a_plane_fitted_by_singular_values(emd5925):
    positions = np.asarray(emd5925.positions) + np.random.default_rng(0).normal(
        0.0, 0.1, np.shape(emd5925.positions)
    )
    planes = find_planes(emd5925.topology, emd5925.positions)
    deviations = planes.deviations(positions)
    everything = []
    for row, plane in enumerate(planes.planes):
        centred = positions[list(plane.atoms)] - positions[list(plane.atoms)].mean(axis=0)
        distance = np.abs(centred @ np.linalg.svd(centred)[2][2])
        everything.extend(distance**2)
        assert deviations.rms[row] == pytest.approx(np.sqrt(np.mean(distance**2)), abs=1e-9)
        assert deviations.worst[row] == pytest.approx(distance.max(), abs=1e-9)
        assert deviations.worst_atom[row] in plane.atoms
    assert planes.rms(positions) == pytest.approx(np.sqrt(np.mean(everything)), abs=1e-9)
    assert planes.worst(positions) == deviations.worst.max()


def test_deviations_from_a_plane_with_a_sigma_per_atom():
    """An atom with a large σ does not tilt the plane: three tight atoms define it."""
    positions = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0.5]])
    topology = molecule("C1-C2 C2-C3 C3-C4")
    loose = PlaneSet((replace(plane_of(topology), sigma=(0.001, 0.001, 0.001, 10.0)),))
    deviations = loose.deviations(positions)
    assert deviations.worst[0] == pytest.approx(0.5, abs=1e-4) and deviations.worst_atom[0] == 3


def plane_of(topology):
    benzene = molecule(FULL_RINGS["benzene"][0])
    return replace(find_planes(benzene).planes[0], atoms=tuple(range(topology.getNumAtoms())))


def test_boron_nitro_groups_and_imines_without_hydrogens():
    """Phenylboronic acid and nitrobenzene in their ideal geometry; methyl carbons, out of the plane, take no part."""
    ring = 1.39 * np.array([[np.cos(a), np.sin(a), 0.0] for a in np.arange(6) * np.pi / 3])
    carbons = "C1 C2 C3 C4 C5 C6"
    out = {name: ring[k] / 1.39 for k, name in enumerate(carbons.split())}
    for element, length, arm in (("B", 1.57, 1.36), ("N", 1.47, 1.22)):
        centre = out["C1"] * (1.39 + length)
        arms = [centre + arm * np.array([0.5, sign * np.sqrt(0.75), 0.0]) for sign in (1, -1)]
        methyl = ring[3] + 1.51 * out["C4"]
        topology = build([("LIG", f"{carbons} {element}7 O8 O9 C10")])
        planes = find_planes(topology, np.vstack([ring, centre, *arms, methyl]))
        assert named(planes.planes, topology) == sets(f"{carbons} {element}7 C10", f"C1 {element}7 O8 O9")


def test_backbone_names_in_a_ligand_promise_nothing():
    cyclohexane = FULL_RINGS["cyclohexane"][0]
    for old, new in (("C1", "CA"), ("C2", "C"), ("C3", "N")):
        cyclohexane = " ".join(
            "-".join(new if atom == old else atom for atom in bond.split("-")) for bond in cyclohexane.split()
        )
    assert find_planes(molecule(cyclohexane + " C-O O-HO")).planes == ()


def test_ions_named_like_nucleotides():
    planes = find_planes(build([("I", "I"), ("U", "U"), ("CA", "CA")]))
    assert planes == PlaneSet(())


def test_no_planes():
    planes = find_planes(build([("HOH", "O"), ("MG", "MG")]))
    assert planes == PlaneSet(()) and planes.grouped() == [] and planes.by_residue() == {}
    assert planes.rms(np.zeros((2, 3))) == 0.0 and planes.worst(np.zeros((2, 3))) == 0.0
