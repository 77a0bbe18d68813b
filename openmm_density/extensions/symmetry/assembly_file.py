"""A unit and the operators that make its assembly, in one mmCIF file, and a unit cut out of the file of an assembly."""

from __future__ import annotations

import os
from collections.abc import Sequence

import gemmi
import numpy as np

from ...base.atomic_files import write_text
from ...base.cif_files import read_cif
from ...base.errors import InputError
from ...base.units import takes_units

ASSEMBLY = "1"
"""The id of the assembly in the file."""


@takes_units("translations")
def write_assembly(
    unit: str | os.PathLike[str],
    rotations: np.ndarray,
    translations: np.ndarray,
    path: str | os.PathLike[str],
    *,
    is_helical: bool = False,
) -> None:
    """Write the mmCIF file of a unit again, with its operators: programs build the assembly from them.

    The unit's atoms and all else in its file stay as they are; ``_pdbx_struct_assembly``, ``_pdbx_struct_assembly_gen`` and
    ``_pdbx_struct_oper_list`` are replaced.

    Parameters
    ----------
    unit : path-like
        An mmCIF file.
    rotations, translations : np.ndarray, shapes (n, 3, 3) and (n, 3)
        Of the operators, Å, the identity first.
    path : path-like
        The file to write.
    is_helical : bool
        Whether the operators are those of a helix, as the file then says.

    Raises
    ------
    InputError
        If the file is no mmCIF file, or has no atoms.
    """
    document = read_cif(unit)
    block = document[0]
    chains = list(dict.fromkeys(block.find_values("_atom_site.label_asym_id")))
    if not chains:
        raise InputError("has no atoms", source=unit, remedy="give the mmCIF file of a model")
    n, kind = len(rotations), "helical" if is_helical else "point"
    # The dictionary's words: gemmi sees no assembly where it does not know them.
    details = "representative helical assembly" if is_helical else "complete point assembly"
    block.set_mmcif_category(
        "_pdbx_struct_assembly.",
        {
            # The empty ones are those without which gemmi does not see an assembly.
            "id": [ASSEMBLY],
            "details": [details],
            "method_details": [None],
            "oligomeric_details": [None],
            "oligomeric_count": [str(n)],
        },
    )
    block.set_mmcif_category(
        "_pdbx_struct_assembly_gen.",
        {
            "assembly_id": [ASSEMBLY],
            "oper_expression": [",".join(str(k + 1) for k in range(n))],
            "asym_id_list": [",".join(chains)],
        },
    )
    block.set_mmcif_category("_pdbx_struct_oper_list.", _operator_table(rotations, translations, kind))
    write_text(path, document.as_string())


def _operator_table(rotations: np.ndarray, translations: np.ndarray, kind: str) -> dict[str, list[str]]:
    """Return ``_pdbx_struct_oper_list``, numbered from 1."""
    n = len(rotations)
    types = ["identity operation", *[f"{kind} symmetry operation"] * (n - 1)]
    table: dict[str, list[str]] = {"id": [str(k + 1) for k in range(n)], "type": types}
    for i in range(3):
        for j in range(3):
            table[f"matrix[{i + 1}][{j + 1}]"] = [f"{value:.10f}" for value in rotations[:, i, j]]
        table[f"vector[{i + 1}]"] = [f"{value:.6f}" for value in translations[:, i]]
    return table


def write_expanded(assembly: str | os.PathLike[str], path: str | os.PathLike[str]) -> int:
    """Write all copies of an assembly as a model of their own, each chain with a name of its own; return how many atoms.

    Parameters
    ----------
    assembly : path-like
        What `write_assembly` wrote.
    path : path-like
        The mmCIF file to write.
    """
    structure = gemmi.make_structure_from_block(read_cif(assembly)[0])
    structure.transform_to_assembly(ASSEMBLY, gemmi.HowToNameCopiedChain.AddNumber)
    write_text(path, structure.make_mmcif_document().as_string())
    return int(structure[0].count_atom_sites())


def write_unit(
    model: str | os.PathLike[str], chains: Sequence[str], path: str | os.PathLike[str]
) -> tuple[str, ...]:
    """Write some chains of a model as a model of their own, with what its file says of them."""
    structure = gemmi.read_structure(os.fspath(model), format=gemmi.CoorFormat.Detect)
    structure.setup_entities()
    left_out: list[str] = []
    for part in structure:
        for name in [chain.name for chain in part if chain.name not in chains]:
            part.remove_chain(name)
            left_out.append(name)
    structure.connections = [
        bond for bond in structure.connections if {bond.partner1.chain_name, bond.partner2.chain_name} <= set(chains)
    ]  # fmt: skip
    structure.assemblies = []
    write_text(path, structure.make_mmcif_document().as_string())
    return tuple(dict.fromkeys(left_out))
