"""Write the package's table of ideal geometry, ``standard.cif``, from a CCP4 monomer library.

Run it with ``python monomer_table.py FOLDER SOURCE OUTPUT``. FOLDER is the library; SOURCE says where it comes from.
Of amino acids, nucleotides, caps, ends and links the table has names of atoms, elements, orders of bonds, ideal values
and their σ, and nothing else that the library says. The same library gives the same bytes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gemmi
from gemmi import cif

_AMINO_ACIDS = gemmi.expand_one_letter_sequence("ACDEFGHIKLMNPQRSTVWY", gemmi.ResidueKind.AA)
_MODIFIED = ["MSE", "PTR", "SEP", "TPO", "CSO", "CME", "KCX", "PCA", "5MC", "PSU", "OMG"]
_SUGARS = ["NAG", "BMA", "MAN", "FUC", "GAL", "GLC", "BGC"]
_COFACTORS = [
    "HEM",
    "HEC",
    "ADP",
    "AMP",
    "ANP",
    "ATP",
    "GDP",
    "GTP",
    "FAD",
    "FMN",
    "NAD",
    "NAP",
    "NDP",
    "SAH",
    "SAM",
    "COA",
]
_COFACTORS += ["PLP", "CLR"]
RESIDUES = [
    *_AMINO_ACIDS,
    "ACE",
    "NME",
    "NH2",
    *"ACGU",
    "DA",
    "DC",
    "DG",
    "DT",
    *_MODIFIED,
    *_SUGARS,
    *_COFACTORS,
]
LINKS = ["TRANS", "CIS", "PTRANS", "PCIS", "NMTRANS", "NMCIS", "ACE_C-N", "pep-NH2", "SS", "p"]
LINKS += [f"{anomer}1-{place}" for anomer in ("ALPHA", "BETA") for place in (2, 3, 4, 6)]
LINKS += ["pyr-ASN", "pyr-SER", "pyr-THR"]
ENDS = ["5*END"]
TABLES = ("atom", "bond", "angle", "chir", "plane", "plane_atom")
WORDS = (
    "type_energy",
    "aromatic",
    "charge",
    "new_charge",
    "new_partial_charge",
    "x",
    "y",
    "z",
)
"""Columns that are neither names nor values of a restraint."""


def copied(source: cif.Document, name: str, output: cif.Document) -> None:
    """Copy the names and values of a residue type, link or modification."""
    block, prefix = source.find_block(name), f"_chem_{name.split('_')[0]}_"
    kinds = (*TABLES, "tor") if name.startswith("link") else TABLES
    target = output.add_new_block(name)
    for kind in kinds:
        category = f"{prefix}{kind}."
        table = block.find_mmcif_category(category)
        tags = [tag for tag in table.tags if tag.removeprefix(category) not in WORDS]
        if tags:
            # gemmi wants the column of energy types, of which nothing is needed.
            rows = [
                ["." if tag.endswith("type_energy") else value for tag, value in zip(tags, row)]
                for row in block.find(tags)
            ]
            loop = target.init_loop(category, [tag.removeprefix(category) for tag in tags])
            for row in rows:
                loop.add_row(row)


def listed(source: cif.Document, name: str, category: str, tags: list[str], chosen: list[str]) -> cif.Block:
    """Return rows of a list of the library, those of the names chosen; readers want a longer name too, which the same serves."""
    block = cif.Block(name)
    loop = block.init_loop(category, [*tags, "name"])
    for row in source.find_block(name).find(category, tags):
        if cif.as_string(row[0]) in chosen:
            loop.add_row([*row, row[0]])
    return block


def table(folder: Path) -> tuple[str, cif.Document]:
    """Return the library's version and the table."""
    library = cif.read(str(folder / "list" / "mon_lib_list.cif"))
    output = cif.Document()
    sides = [f"{tag}_{side}" for side in (1, 2) for tag in ("comp_id", "mod_id", "group_comp")]
    links = listed(library, "link_list", "_chem_link.", ["id", *sides], LINKS)
    changes = [
        cif.as_string(name)
        for tag in ("mod_id_1", "mod_id_2")
        for name in links.find_values(f"_chem_link.{tag}")
    ]
    changes = sorted({*changes, *ENDS} - {""})
    files = {name: folder / name[0].lower() / f"{name}.cif" for name in RESIDUES}
    present = [name for name, file in files.items() if file.exists()]
    if missing := sorted(set(RESIDUES) - set(present)):
        print(f"The library has no {', '.join(missing)}.")
    for block in (
        listed(library, "comp_list", "_chem_comp.", ["id", "group"], present),
        links,
        listed(library, "mod_list", "_chem_mod.", ["id", "comp_id", "group_id"], changes),
    ):
        output.add_copied_block(block)
    for name in present:
        copied(cif.read(str(files[name])), f"comp_{name}", output)
    for name in (*(f"link_{each}" for each in LINKS), *(f"mod_{each}" for each in changes)):
        copied(library, name, output)
    return library.find_block("lib").find_value("_lib.version"), output


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("source")
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    version, document = table(options.folder)
    heading = (
        f"# Ideal values and standard deviations, in Å and degrees, of the CCP4 monomer library, version {version}\n"
        f"# (taken from {options.source}).\n"
    )
    options.output.write_text(heading + document.as_string(), encoding="utf-8")


if __name__ == "__main__":
    main()
