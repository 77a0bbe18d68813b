"""The document of an mmCIF file with new atomic positions."""

from __future__ import annotations

from collections.abc import Sequence

import gemmi
import numpy as np

from ..predictions import add_local_metric
from ..written_structures import Header
from .cif_atoms import AtomTable, CifAtoms
from .cif_bonds import AtomNames, write_bonds, write_cis_peptides

STALE_CATEGORIES = (
    *("_refine_hist.", "_refine_ls_restr.", "_refine_ls_restr_ncs.", "_refine_ls_restr_type."),
    *("_refine_ls_shell.", "_refine_ls_class.", "_refine_analyze.", "_refine_funct_minimized."),
    *(
        "_refine_occupancy.",
        "_refine_B_iso.",
        "_pdbx_refine.",
        "_pdbx_refine_tls.",
        "_pdbx_refine_tls_group.",
    ),
    *("_pdbx_refine_component.", "_pdbx_refine_aux_file.", "_pdbx_distant_solvent_atoms."),
    *("_pdbx_struct_special_symmetry.", "_pdbx_struct_conn_angle.", "_pdbx_atom_site_aniso_tls."),
    *("_struct_mon_prot.", "_struct_mon_nucl."),
)
"""Categories that a fit makes untrue: a refinement's statistics, and geometry and positions of single atoms."""

STALE_BEGINNING = "_pdbx_validate_"
"""Prefixes of further ones: wwPDB's geometry checks of the model before the fit."""

KEPT_OF_REFINEMENT = ("entry_id", "pdbx_refine_id", "ls_d_res_high", "ls_d_res_low", "pdbx_diffrn_id")
"""Items of ``_refine`` that describe the data: all others are statistics of the model before the fit."""

PLACED_CATEGORIES = (
    *("_cell.", "_symmetry.", "_space_group.", "_space_group_symop.", "_symmetry_equiv.", "_atom_sites."),
    *(
        "_database_PDB_matrix.",
        "_struct_ncs_oper.",
        "_struct_ncs_ens.",
        "_struct_ncs_ens_gen.",
        "_struct_ncs_dom.",
    ),
    *("_struct_ncs_dom_lim.", "_pdbx_struct_assembly.", "_pdbx_struct_assembly_gen."),
    *("_pdbx_struct_assembly_prop.", "_pdbx_struct_assembly_auth_evidence.", "_pdbx_struct_oper_list."),
    *("_pdbx_point_symmetry.", "_pdbx_helical_symmetry."),
)
"""Categories that depend on where the input has the model: crystal, symmetry and assemblies."""


def stale_categories(block: gemmi.cif.Block) -> list[str]:
    """Return the categories of a block that a fit makes untrue, in the block's order."""
    stale = {name.lower() for name in STALE_CATEGORIES}
    return [
        name
        for name in block.get_mmcif_category_names()
        if name.lower() in stale or name.lower().startswith(STALE_BEGINNING)
    ]


def atom_block(document: gemmi.cif.Document) -> gemmi.cif.Block:
    """Return the block of a document that contains the atoms."""
    return next(block for block in document if block.find_loop("_atom_site.Cartn_x"))


def kept_document(
    header: Header,
    models: Sequence[CifAtoms],
    peptides: Sequence[gemmi.CisPep],
) -> gemmi.cif.Document:
    """Return the document of the file that a model was read from, with its atoms as they are now.

    A value stays as it is unless the fit makes it untrue: coordinates, B factors and occupancies are written anew where they
    differ, and so are lengths in ``_struct_conn`` and angles in ``_struct_mon_prot_cis``. Rows of atoms that were built resemble
    those of their residue. Left out are `stale_categories`, statistics in ``_refine``, anisotropic displacements of atoms that
    moved or have another B factor, further models, and `PLACED_CATEGORIES` if the model was moved elsewhere.

    `header`: of an mmCIF file. `models`: the atoms of each model, in the order of the new file. Where atoms were built
    or reordered, all get new serial numbers. `peptides`: the present cis peptides of the first model.
    """
    document = input_document(header)
    block = atom_block(document)
    for name in stale_categories(block):
        block.find_mmcif_category(name).erase()
    _keep_of_refinement(block)
    table = AtomTable(block)
    names = AtomNames(table.columns)
    first = models[0]
    renumbered = len(models) > 1 or first.is_built.any() or (np.diff(first.rows) <= 0).any()
    columns, still, moved = table.replaced(models, bool(renumbered))
    now = AtomNames({name: values[: len(first.rows)] for name, values in columns.items()})
    _keep_displacements(block, still)
    _write_crystal(block, header)
    links = [(link.first, link.second, link.symmetry) for link in header.links]
    write_bonds(block, names, now, first.positions, links, header, moved)
    write_cis_peptides(block, now, peptides, moved)
    _declare_new(block, columns)
    add_local_metric(block, header.plddt, header.predictor)
    return document


def input_document(header: Header) -> gemmi.cif.Document:
    """Return the document of the mmCIF file that a model was read from."""
    text = header.metadata.text.encode("utf-8", "surrogateescape")
    return gemmi.cif.read_string(text.decode("utf-8", "replace"))


def _keep_of_refinement(block: gemmi.cif.Block) -> None:
    table = block.get_mmcif_category("_refine.", raw=True)
    kept = {name: values for name, values in table.items() if name in KEPT_OF_REFINEMENT}
    if not table or len(kept) == len(table):
        return
    if kept:
        block.set_mmcif_category("_refine.", kept, raw=True)
    else:
        block.find_mmcif_category("_refine.").erase()


def _keep_displacements(block: gemmi.cif.Block, still: dict[str, str]) -> None:
    """Keep the anisotropic displacements of atoms that stayed, by their serial numbers."""
    table = block.get_mmcif_category("_atom_site_anisotrop.", raw=True)
    if not table or "id" not in table:
        return
    rows = [row for row, serial in enumerate(table["id"]) if serial in still]
    if not rows:
        block.find_mmcif_category("_atom_site_anisotrop.").erase()
        return
    kept = {name: [values[row] for row in rows] for name, values in table.items()}
    kept["id"] = [still[serial] for serial in kept["id"]]
    if kept != table:
        block.set_mmcif_category("_atom_site_anisotrop.", kept, raw=True)


def _write_crystal(block: gemmi.cif.Block, header: Header) -> None:
    """Omit the crystal where the model is no longer in it, and its symmetry where the map has none."""
    own = header.metadata.structure.spacegroup_hm
    if header.metadata.is_elsewhere:
        for name in PLACED_CATEGORIES:
            block.find_mmcif_category(name).erase()
    elif header.cell is not None and header.space_group != own:
        for name in ("_symmetry.", "_space_group.", "_space_group_symop.", "_symmetry_equiv."):
            block.find_mmcif_category(name).erase()
        block.set_pair("_symmetry.space_group_name_H-M", gemmi.cif.quote(header.space_group or "P 1"))


def _declare_new(block: gemmi.cif.Block, columns: dict[str, np.ndarray]) -> None:
    """Add elements and components that only built atoms have to the file's lists."""
    for tag, column in (("_atom_type.symbol", "type_symbol"), ("_chem_comp.id", "label_comp_id")):
        loop = block.find_loop(tag).get_loop()
        if loop is None or column not in columns:
            continue
        known = {gemmi.cif.as_string(value).upper() for value in block.find_values(tag)}
        for value in dict.fromkeys(columns[column]):
            if gemmi.cif.as_string(value).upper() not in known:
                loop.add_row([value if own == tag else "?" for own in loop.tags])
