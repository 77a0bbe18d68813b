"""The flat groups of amino acids, nucleotides and their common modifications, by the names of their atoms."""

from __future__ import annotations

import functools

_WITHOUT_FLAT_SIDE_CHAIN = (
    *("ALA", "CYS", "GLY", "ILE", "LEU", "LYS", "MET", "PRO", "SER", "THR", "VAL", "UNK"),
    *("MSE", "SEC", "SEP", "TPO", "HYP", "M3L", "MLY", "MLZ", "CSO", "CSD", "CSX", "OCS", "CME", "CAS"),
    *("SAR", "ORN", "NLE", "ABA", "AIB", "NVA", "DAB"),
    *("ACE", "FOR", "NH2", "NME", "NMA"),
)

# Every row starts with the sp3 atom that carries the group; nothing beyond that atom is in its plane.
_SIDE_CHAINS: dict[str, tuple[tuple[str, str], ...]] = {
    "ARG": (("guanidinium", "CD NE CZ NH1 NH2 HE HH11 HH12 HH21 HH22"),),
    "ASN": (("side chain", "CB CG OD1 ND2 HD21 HD22"),),
    "ASP": (("carboxylate", "CB CG OD1 OD2"),),
    "GLN": (("side chain", "CG CD OE1 NE2 HE21 HE22"),),
    "GLU": (("carboxylate", "CG CD OE1 OE2"),),
    "HIS": (("ring", "CB CG ND1 CD2 CE1 NE2 HD1 HD2 HE1 HE2"),),
    "PHE": (("ring", "CB CG CD1 CD2 CE1 CE2 CZ HD1 HD2 HE1 HE2 HZ"),),
    "TRP": (("ring", "CB CG CD1 CD2 NE1 CE2 CE3 CZ2 CZ3 CH2 HD1 HE1 HE3 HZ2 HZ3 HH2"),),
    "TYR": (("ring", "CB CG CD1 CD2 CE1 CE2 CZ OH HD1 HD2 HE1 HE2"),),
    "PCA": (("side chain", "CA N CD OE CG H HN"),),
    "FME": (("side chain", "CA N CN O1 H HN HCN"),),
    "ALY": (("side chain", "CE NZ CH OH CH3 HZ"),),
    "KCX": (("side chain", "CE NZ CX OQ1 OQ2 HZ"),),
    "CGU": (("carboxylate", "CG CD1 OE11 OE12"), ("carboxylate", "CG CD2 OE21 OE22")),
}
_SIDE_CHAINS |= dict.fromkeys(_WITHOUT_FLAT_SIDE_CHAIN, ())

# Names of the same flat groups in CHARMM, Amber and GROMACS, and of D-amino acids in the wwPDB.
_AMINO_ACID_SYNONYMS: dict[str, str] = {
    "ARG": "ARN DAR",
    "ASN": "DSG",
    "ASP": "ASH ASPP ASPH DAS",
    "GLN": "DGN",
    "GLU": "GLH GLUP GLUH DGL",
    "HIS": "HID HIE HIP HSD HSE HSP HISA HISB HISH HISD HISE DHI",
    "PHE": "DPN",
    "TRP": "DTR",
    "TYR": "TYM DTY",
    "ALA": "DAL",
    "CYS": "CYX CYM CYS2 CYSH DCY",
    "ILE": "DIL",
    "LEU": "DLE",
    "LYS": "LYN LYSN LSN DLY",
    "MET": "MED",
    "PRO": "DPR",
    "SER": "DSN",
    "THR": "DTH",
    "VAL": "DVA",
    "HYP": "HZP HY3",
}

# residue: (amino acid whose groups it has, atoms that its modification adds to the plane)
_MODIFIED_AMINO_ACIDS: dict[str, tuple[str, str]] = {
    "PTR": ("TYR", ""),
    "TYS": ("TYR", ""),
    "HIC": ("HIS", "CZ"),
    "MHS": ("HIS", "CM"),
    "NEP": ("HIS", "P"),
    "2MR": ("ARG", "CQ1 CQ2"),
    "DA2": ("ARG", "CQ1 CQ2"),
    "PHD": ("ASP", ""),
    "BFD": ("ASP", ""),
    "MEN": ("ASN", "CE2"),
    "MEQ": ("GLN", "CH"),
}

PROLINES = frozenset(["PRO", "DPR", "HYP", "HZP", "HY3"])

_BASES: dict[str, str] = {
    "A": "C1' N9 C8 N7 C5 C6 N6 N1 C2 N3 C4 H8 H61 H62 H2",
    "G": "C1' N9 C8 N7 C5 C6 O6 N1 C2 N2 N3 C4 H8 H1 H21 H22",
    "I": "C1' N9 C8 N7 C5 C6 O6 N1 C2 N3 C4 H8 H1 H2",
    "C": "C1' N1 C2 O2 N3 C4 N4 C5 C6 H41 H42 H5 H6",
    "U": "C1' N1 C2 O2 N3 C4 O4 C5 C6 H3 H5 H6",
    "T": "C1' N1 C2 O2 N3 C4 O4 C5 C7 C6 H3 H6",
}

# DA5, RA3, AN: Amber writes the strand's end into the residue's name.
_BASE_SYNONYMS: dict[str, str] = {
    base: " ".join(f"{stem}{end}" for stem in stems.split() for end in ("", "5", "3", "N")) + " " + others
    for base, stems, others in (
        ("A", "A DA RA", "ADE A2M AMP ADP ATP ANP ACP AGS CMP SAM SAH ADN"),
        ("G", "G DG RG", "GUA OMG GMP GDP GTP GNP GCP GSP 5GP"),
        ("I", "I DI RI", "IMP"),
        ("C", "C DC RC", "CYT OMC C5P CDP CTP"),
        ("U", "U DU RU", "URA URI OMU U5P UDP UTP"),
        ("T", "DT RT", "THY TMP TTP TYD"),
    )
}

_MODIFIED_BASES: dict[str, tuple[str, str]] = {
    "PSU": ("U", "H1 HN1 HN3"),
    "5MU": ("U", "C5M HN3"),
    "4SU": ("U", "S4"),
    "5BU": ("U", "BR"),
    "UR3": ("U", "C3U"),
    "5MC": ("C", "CM5"),
    "5CM": ("C", "C5A"),
    "2MG": ("G", "CM2 HN1 HN2"),
    "M2G": ("G", "CM1 CM2 HN1"),
    "1MG": ("G", "CM1 HN21 HN22"),
    "7MG": ("G", "CM7 HN1 HN21 HN22"),
    "G7M": ("G", "CM7 HN1 HN21 HN22"),
    "8OG": ("G", "O8 H7"),
    "1MA": ("A", "CM1 HN6 HN61"),
    "2MA": ("A", "CM2"),
    "6MA": ("A", "C1 C10"),
    "6MZ": ("A", "C9"),
    "MA6": ("A", "C9 C10"),
}

# Dihydrouridine: C5 and C6 are sp3, the ring is puckered; two trigonal groups remain.
_DIHYDROURIDINE = (("base", "C1' N1 C2 O2 N3 C6"), ("base", "N3 C4 O4 C5 C2 H3 HN3"))

_ATOM_SYNONYMS = {"C5M": "C7", "C1*": "C1'"}

AMINO_ACIDS = frozenset(_SIDE_CHAINS).union(
    _MODIFIED_AMINO_ACIDS, *(names.split() for names in _AMINO_ACID_SYNONYMS.values())
) - {"ACE", "FOR", "NH2", "NME", "NMA"}

ACYL_MEMBERS = ("CA", "CH3", "C", "O", "OT1", "OC1")

TERMINUS_MEMBERS = ("OXT", "OT2", "OC2", "OT", "NT", "HNT", "CAT")

BACKBONE = frozenset(("N", "H", "H2", "H3", "HA", "CA", "HXT", *ACYL_MEMBERS, *TERMINUS_MEMBERS))

# The substituents of a cap's nitrogen; its names in the wwPDB, in CHARMM and in Amber.
AMINE_CAPS = {
    "NH2": ("HN1", "HN2", "H1", "H2"),
    "NME": ("C", "CH3", "H", "HN"),
    "NMA": ("C", "CA", "CH3", "H", "HN"),
}

# CHARMM writes the acetyl cap into the first residue.
CHARMM_ACETYL = ("peptide", ("CAY", "CY", "OY", "N", "HN", "H", "CA", "CD"))


def _table_of_groups() -> dict[str, tuple[tuple[str, tuple[str, ...]], ...]]:
    """Return the groups of every residue name in the tables above."""
    rows = dict(_SIDE_CHAINS)
    for name, (parent, added) in _MODIFIED_AMINO_ACIDS.items():
        rows[name] = tuple((kind, f"{atoms} {added}") for kind, atoms in _SIDE_CHAINS[parent])
    for parent, synonyms in _AMINO_ACID_SYNONYMS.items():
        rows.update((name, _SIDE_CHAINS[parent]) for name in synonyms.split())
    for base, synonyms in _BASE_SYNONYMS.items():
        rows.update((name, (("base", _BASES[base]),)) for name in synonyms.split())
    for name, (base, added) in _MODIFIED_BASES.items():
        rows[name] = (("base", f"{_BASES[base]} {added}"),)
    rows["H2U"] = rows["DHU"] = _DIHYDROURIDINE
    return {
        name: tuple((kind, tuple(atoms.split())) for kind, atoms in groups) for name, groups in rows.items()
    }


GROUPS = _table_of_groups()


@functools.lru_cache(maxsize=65536)
def canonical_name(name: str) -> str:
    """Return the tables' name for an old PDB name (1HH1, C1*) or a deuterium (DD21)."""
    if name[:1] in ("1", "2", "3") and name[1:2] in ("H", "D"):
        name = name[1:] + name[0]
    if name[:1] == "D":
        name = "H" + name[1:]
    return _ATOM_SYNONYMS.get(name, name.replace("*", "'"))
