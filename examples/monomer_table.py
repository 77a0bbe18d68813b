"""Write the package's table of ideal geometry, ``standard.cif``, from a CCP4 monomer library.

Run it with ``python monomer_table.py FOLDER SOURCE OUTPUT``. FOLDER is the library; SOURCE says where it comes from. Where this
copy of the library lacks a residue, ``--dictionaries`` names a folder of AceDRG's dictionaries, such as ``TYS.cif``, and
``--generator`` what made them. Of residues, ends and links the table has names of atoms, elements, orders of bonds, ideal
values and their σ, and nothing else that the library says. The same library gives the same bytes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gemmi
from gemmi import cif

_AMINO_ACIDS = gemmi.expand_one_letter_sequence("ACDEFGHIKLMNPQRSTVWY", gemmi.ResidueKind.AA)
RESIDUES = [*_AMINO_ACIDS, *["ACE", "NME", "NH2", "A", "C", "G", "U", "DA", "DC", "DG", "DT"]]
RESIDUES += ["MSE", "PTR", "SEP", "TPO", "TYS", "CSO", "CME", "KCX", "PCA", "MLY", "M3L", "HYP", "MHO"]
RESIDUES += ["5MC", "5MU", "PSU", "H2U", "OMC", "OMU", "OMG", "2MG", "M2G", "7MG", "1MA", "A23", "CCC"]
RESIDUES += ["NAG", "NDG", "A2G", "BMA", "MAN", "FUC", "FUL", "GAL", "GLA", "GLC", "BGC", "XYP", "XYS", "SIA"]
RESIDUES += [
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
RESIDUES += ["PLP", "CLR", "SO4", "PO4", "EDO", "GOL", "ACT", "PEG"]
LINKS = ["TRANS", "CIS", "PTRANS", "PCIS", "NMTRANS", "NMCIS", "ACE_C-N", "pep-NH2", "SS", "p"]
LINKS += [f"{anomer}1-{place}" for anomer in ("ALPHA", "BETA") for place in (2, 3, 4, 6)]
LINKS += ["ALPHA2-3", "ALPHA2-6", "ALPHA2-8", "pyr-ASN", "pyr-SER", "pyr-THR"]
ENDS = ["5*END"]
_NUCLEOTIDES = (gemmi.ChemComp.Group.Rna, gemmi.ChemComp.Group.Dna)
TABLES = ("atom", "bond", "angle", "chir", "plane", "plane_atom")
WORDS = [
    "type_energy",
    "aromatic",
    "pdbx_aromatic_flag",
    "charge",
    "new_charge",
    "new_partial_charge",
    "alt_atom_id",
]
WORDS += ["pdbx_leaving_atom_flag", *"xyz", *(f"pdbx_model_Cartn_{axis}_ideal" for axis in "xyz")]
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


def table(folder: Path, dictionaries: Path) -> tuple[str, list[str], cif.Document]:
    """Return the library's version, the residues that it lacks, and the table."""
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
    lacking = [name for name, file in files.items() if not file.exists()]
    files |= {name: dictionaries / f"{name}.cif" for name in lacking}
    present = [name for name, file in files.items() if file.exists()]
    if missing := sorted(set(RESIDUES) - set(present)):
        print(f"There is no {', '.join(missing)}.")
    components = listed(library, "comp_list", "_chem_comp.", ["id", "group"], present)
    for row in components.find("_chem_comp.", ["id", "group"]):
        if row.str(0) in lacking and row.str(1) == "NON-POLYMER":  # nucleotides, to AceDRG
            kind = cif.read(str(files[row.str(0)])).find_block("comp_list").find_value("_chem_comp.group")
            row[1] = kind if gemmi.ChemComp.read_group(cif.as_string(kind or "")) in _NUCLEOTIDES else row[1]
    for block in (
        components,
        links,
        listed(library, "mod_list", "_chem_mod.", ["id", "comp_id", "group_id"], changes),
    ):
        output.add_copied_block(block)
    for name in present:
        copied(cif.read(str(files[name])), f"comp_{name}", output)
    for name in (*(f"link_{each}" for each in LINKS), *(f"mod_{each}" for each in changes)):
        copied(library, name, output)
    lacking = [name for name in lacking if name in present]
    return library.find_block("lib").find_value("_lib.version"), lacking, output


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("source")
    parser.add_argument("output", type=Path)
    parser.add_argument("--dictionaries", type=Path, default=Path())
    parser.add_argument("--generator", default="AceDRG")
    options = parser.parse_args()
    version, lacking, document = table(options.folder, options.dictionaries)
    heading = (
        f"# Ideal values and standard deviations, in Å and degrees, of the CCP4 monomer library, version {version}\n"
        f"# (taken from {options.source}).\n"
    )
    if lacking:
        heading += f"# {options.generator} made those of {', '.join(lacking)}.\n"
    options.output.write_text(heading + document.as_string(), encoding="utf-8")


if __name__ == "__main__":
    main()
