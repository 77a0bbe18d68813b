"""The input's own file with new atomic positions: everything else that is still true stays, character by character."""

from .cif_atoms import CifAtoms
from .cif_document import atom_block, input_document, kept_document
from .left_out import left_out_of_cif, left_out_of_pdb
from .pdb_lines import kept_pdb

__all__ = [
    "CifAtoms",
    "atom_block",
    "input_document",
    "kept_document",
    "kept_pdb",
    "left_out_of_cif",
    "left_out_of_pdb",
]
