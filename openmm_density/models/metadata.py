"""What a file says about a model besides atoms and crystal, kept during a fit and written again where it is still true."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import gemmi

from ..base.cif_files import read_cif
from .chemistry.residue_names import name_tables
from .structure_text import read_pdb_header, read_whole_text

TITLE_RECORDS = (
    *("SPLIT", "CAVEAT", "COMPND", "SOURCE", "AUTHOR", "REVDAT", "SPRSDE", "JRNL"),
    *("SEQADV", "HETNAM", "HETSYN", "FORMUL"),
)
"""Records of a PDB file that gemmi does not keep: their lines are kept and written to PDB files again."""

CATEGORIES = (
    *("_citation.", "_citation_author.", "_database_2.", "_pdbx_database_related.", "_em_3d_reconstruction."),
    *(
        "_em_buffer.",
        "_em_ctf_correction.",
        "_em_experiment.",
        "_em_image_processing.",
        "_em_image_recording.",
    ),
    *(
        "_em_imaging.",
        "_em_imaging_optics.",
        "_em_particle_selection.",
        "_em_sample_support.",
        "_em_specimen.",
    ),
    "_em_vitrification.",
)
"""Categories of an mmCIF file on experiment and publication that gemmi does not keep: they are written to mmCIF files again."""

STALE_REMARKS = frozenset((3, 375, 500, 525, 620))
"""Numbers of REMARK records that a fit makes untrue: the refinement's statistics (3), atoms on special positions (375), geometry
(500), distant waters (525), and the coordination of metals (620)."""

PLACED_REMARKS = frozenset((290, 300, 350))
"""Those with operators that depend on the model's place in the input: symmetry, and the biological molecule."""

RECORD_ORDER = (
    *(
        "HEADER",
        "OBSLTE",
        "TITLE",
        "SPLIT",
        "CAVEAT",
        "COMPND",
        "SOURCE",
        "KEYWDS",
        "EXPDTA",
        "NUMMDL",
        "MDLTYP",
    ),
    *(
        "AUTHOR",
        "REVDAT",
        "SPRSDE",
        "JRNL",
        "REMARK",
        "DBREF",
        "DBREF1",
        "DBREF2",
        "SEQADV",
        "SEQRES",
        "MODRES",
    ),
    *(
        "HET",
        "HETNAM",
        "HETSYN",
        "FORMUL",
        "HELIX",
        "SHEET",
        "SSBOND",
        "LINK",
        "LINKR",
        "CISPEP",
        "SITE",
        "CRYST1",
    ),
    *("ORIGX1", "ORIGX2", "ORIGX3", "SCALE1", "SCALE2", "SCALE3", "MTRIX1", "MTRIX2", "MTRIX3"),
)


@dataclass(frozen=True)
class Metadata:
    """What a file says about a model besides its atoms and its crystal.

    It keeps what a fit has no reason to change: title, keywords, authors, method, resolution, remarks, sequences (SEQRES) with
    their references (DBREF), modified residues (MODRES), helices and sheets as the file has them, assemblies and operators of
    non-crystallographic symmetry; of a PDB file also `TITLE_RECORDS` and CONECT, of an mmCIF file `CATEGORIES`. It omits
    refinement statistics, which describe the model before the fit, `STALE_REMARKS`, and anisotropic B factors, which hold
    only at an atom's old place. Cis peptides, links and the crystal are determined anew whenever a model is written. Statements
    about chains that are not in the file are not written.
    """

    # Without atoms, sequences and crystal; its links are those of conformers that are not fitted
    structure: gemmi.Structure = field(default_factory=gemmi.Structure)
    sequences: Mapping[str, gemmi.Entity] = field(default_factory=dict)  # The polymer of each chain id
    records: tuple[str, ...] = ()  # Lines of a PDB file that gemmi does not keep
    categories: str = ""  # `CATEGORIES` of an mmCIF file, as the text of a file
    # The bonds of CONECT, by the serial numbers of a PDB file, each as often as the file has it
    connections: Mapping[int, list[int]] = field(default_factory=dict)
    # The whole file, into which the atoms of its own format are written again (`openmm_density.models.kept_files`)
    text: str = field(default="", repr=False)
    is_pdb: bool = False  # Whether that is a PDB file
    is_elsewhere: bool = False  # Whether the model was moved elsewhere

    def elsewhere(self) -> Metadata:
        """Return what is still true of a model that was moved elsewhere: nothing with symmetry or assembly operators."""
        structure = self.structure.clone()
        structure.ncs = []
        structure.assemblies = []
        structure.raw_remarks = _without(structure.raw_remarks, PLACED_REMARKS)
        return replace(self, structure=structure, is_elsewhere=True)

    def attach(self, structure: gemmi.Structure, aligned: bool = True, unnamed: str = "") -> None:
        """Add everything that gemmi keeps to a structure whose polymers have names, entity types and subchains."""
        own = self.structure
        structure.meta, structure.resolution = own.meta, own.resolution
        info = dict(own.info)
        if not structure.cell.is_crystal():
            info = {key: value for key, value in info.items() if not key.startswith("_cell.")}
        if not aligned:
            # The lines of a PDB file have a fixed number of bytes, and must not end within a character.
            info = {key: value.encode("ascii", "replace").decode() for key, value in info.items()}
        structure.info = info
        structure.raw_remarks = own.raw_remarks
        if not structure.cell.is_crystal() or structure.spacegroup_hm != own.spacegroup_hm:
            structure.raw_remarks = _without(own.raw_remarks, {290})
        structure.ncs, structure.assemblies = own.ncs, own.assemblies
        chains = {chain.name for chain in structure[0]}
        names = {
            (chain.name, str(residue.seqid).strip()): residue.name
            for chain in structure[0]
            for residue in chain
        }
        structure.helices, structure.sheets = own.helices, own.sheets
        for end in _secondary_ends(structure):
            end.chain_name = end.chain_name.strip() or unnamed
        structure.helices = [each for each in structure.helices if each.start.chain_name in chains]
        structure.sheets = [
            each
            for each in structure.sheets
            if all(strand.start.chain_name in chains for strand in each.strands)
        ]
        structure.mod_residues = [each for each in own.mod_residues if each.chain_name in chains]
        for end in _secondary_ends(structure):
            # A residue may be simulated, and written, under another name.
            end.res_id.name = names.get((end.chain_name, str(end.res_id.seqid).strip()), end.res_id.name)
        for number, connection in enumerate(own.connections, start=1):
            ends = (connection.partner1, connection.partner2)
            atoms = [structure[0].find_cra(end, ignore_segment=True).atom for end in ends]
            # gemmi finds an atom without a label under any label.
            same = [atom is not None and atom.altloc == end.altloc != "\0" for atom, end in zip(atoms, ends)]
            if None not in atoms and any(same):
                structure.connections.append(connection)
                structure.connections[-1].name = f"alternate{number}"
        sequences = {name or unnamed: entity for name, entity in self.sequences.items()}
        structure.entities = _entities(structure, sequences, aligned)
        if structure.resolution > 0:
            # gemmi writes it to mmCIF files as a part of these.
            refinement = gemmi.RefinementInfo()
            refinement.id = dict(structure.info).get("_exptl.method", "?")
            refinement.resolution_high = structure.resolution
            structure.meta.refinement = [refinement]

    def pdb_lines(self, lines: Iterable[str]) -> list[str]:
        """Return gemmi's header lines and those that gemmi does not keep, in the PDB format's order."""
        order = {name: place for place, name in enumerate(RECORD_ORDER)}
        return sorted([*lines, *self.records], key=lambda line: order.get(line[:6].strip(), len(order)))

    def add_categories(self, block: gemmi.cif.Block) -> None:
        """Add `CATEGORIES` to gemmi's document of a structure, where it has none."""
        if not self.categories:
            return
        known = set(block.get_mmcif_category_names())
        kept = gemmi.cif.read_string(self.categories).sole_block()
        for item in kept:
            if _category(item) not in known:
                block.add_item(item)

    def connect_lines(self, serials: Mapping[int, int]) -> list[str]:
        """Return the CONECT lines for atoms with new serial numbers, without those beyond PDB's numbering."""
        lines = []
        bonded = {
            serials[first]: [serials[other] for other in others if other in serials]
            for first, others in self.connections.items()
            if first in serials
        }
        for first, others in sorted(bonded.items()):
            for start in range(0, len(others), 4):
                lines.append(
                    "CONECT" + "".join(f"{serial:5d}" for serial in (first, *others[start : start + 4]))
                )
        return lines if max(serials.values(), default=0) <= 99999 else []


def _secondary_ends(structure: gemmi.Structure) -> list[gemmi.AtomAddress]:
    """Return the ends of the helices and strands of a structure."""
    ends = [end for helix in structure.helices for end in (helix.start, helix.end)]
    strands = [strand for sheet in structure.sheets for strand in sheet.strands]
    return ends + [end for strand in strands for end in (strand.start, strand.end)]


def read_metadata(structure: gemmi.Structure, path: str | os.PathLike[str]) -> Metadata:
    """Return what a structure says besides its atoms, and its file in records that gemmi does not keep."""
    bare = gemmi.Structure()
    bare.name, bare.info, bare.meta, bare.resolution = (
        structure.name,
        structure.info,
        structure.meta,
        structure.resolution,
    )
    # Needed to know whether the symmetry operators in remarks match the crystal that is written.
    bare.spacegroup_hm = structure.spacegroup_hm
    bare.helices, bare.sheets, bare.mod_residues = structure.helices, structure.sheets, structure.mod_residues
    bare.ncs = structure.ncs
    bare.assemblies = _by_chains(structure)
    bare.raw_remarks = _without(structure.raw_remarks, STALE_REMARKS)
    bare.meta.refinement = []
    if structure.raw_remarks and structure.resolution > 0 and not _numbered(bare.raw_remarks, 2):
        bare.raw_remarks = [
            "REMARK   2",
            f"REMARK   2 RESOLUTION. {structure.resolution:7.2f} ANGSTROMS.",
            *bare.raw_remarks,
        ]
    records, categories = (), ""
    is_pdb = structure.input_format == gemmi.CoorFormat.Pdb
    if is_pdb:
        records = tuple(line for line in read_pdb_header(path) if line[:6].strip() in TITLE_RECORDS)
    else:
        categories = _kept_categories(path)
    return Metadata(
        bare,
        _sequences(structure),
        records,
        categories,
        dict(structure.conect_map.items()),
        read_whole_text(path),
        is_pdb,
    )


def _kept_categories(path: str | os.PathLike[str]) -> str:
    document = gemmi.cif.Document()
    kept = document.add_new_block("kept")
    block = next(block for block in read_cif(path) if block.find_loop("_atom_site.Cartn_x"))
    for item in block:
        if _category(item) in CATEGORIES:
            kept.add_item(item)
    return document.as_string() if len(list(kept)) else ""


def _category(item: gemmi.cif.Item) -> str:
    """Return the category of an item, as in ``_citation.``; empty if it has none."""
    tag = item.pair[0] if item.pair is not None else item.loop.tags[0] if item.loop is not None else ""
    return tag.partition(".")[0] + "." if "." in tag else ""


def _sequences(structure: gemmi.Structure) -> dict[str, gemmi.Entity]:
    """Return the polymer of each chain id with a sequence."""
    found: dict[str, gemmi.Entity] = {}
    polymers = [
        entity
        for entity in structure.entities
        if entity.entity_type == gemmi.EntityType.Polymer and entity.full_sequence
    ]
    by_subchain = {subchain: entity for entity in polymers for subchain in entity.subchains}
    if by_subchain:
        for chain in structure[0]:
            for residue in chain:
                if residue.subchain in by_subchain:
                    found.setdefault(chain.name.strip(), by_subchain[residue.subchain])
        return found
    # gemmi names the entity of SEQRES after the chain.
    return {entity.name.strip(): entity for entity in polymers}


def _by_chains(structure: gemmi.Structure) -> list[gemmi.Assembly]:
    """Return the assemblies of whole chains by chain id, since subchains get new names when the model is written."""
    of_chain: dict[str, set[str]] = defaultdict(set)
    for chain in structure[0]:
        of_chain[chain.name] |= {residue.subchain for residue in chain}
    holder = gemmi.Structure()
    holder.assemblies = structure.assemblies
    kept = []
    for assembly in holder.assemblies:
        whole = True
        for generator in assembly.generators:
            taken = set(generator.subchains)
            chains = [name for name, subchains in of_chain.items() if subchains & taken]
            whole = whole and all(of_chain[name] <= taken for name in chains)
            if taken:
                generator.chains, generator.subchains = chains, []
        if whole:
            kept.append(assembly)
    holder.assemblies = kept
    return holder.assemblies


def _entities(
    structure: gemmi.Structure, sequences: Mapping[str, gemmi.Entity], aligned: bool
) -> list[gemmi.Entity]:
    """Return the polymers of a structure that have a sequence, with subchains; optionally number their residues by it."""
    holder = gemmi.Structure()
    wanted: dict[str, gemmi.Entity] = {}
    subchains: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(chain.name for chain in structure[0]):
        entity = sequences.get(name)
        if entity is None:
            continue
        residues = [
            residue
            for chain in structure[0]
            if chain.name == name
            for residue in chain
            if residue.entity_type == gemmi.EntityType.Polymer
        ]
        if not residues:
            continue
        if aligned:
            if not {residue.name for residue in residues} <= {*",".join(entity.full_sequence).split(",")}:
                # Sequences from simulations have names of their own, as HSD for HIS, which the atoms no longer have.
                entity = _with_standard_names(entity)
            places = _places(residues, entity)
            if None in places:
                continue
            for residue, place in zip(residues, places):
                residue.label_seq = place
        wanted[entity.name] = entity
        subchains[entity.name] += dict.fromkeys(residue.subchain for residue in residues)
    holder.entities = list(wanted.values())
    for entity in holder.entities:
        entity.subchains = subchains[entity.name]
    return holder.entities


def _with_standard_names(entity: gemmi.Entity) -> gemmi.Entity:
    """Return a polymer whose sequence has the PDB's residue names in place of simulations' names."""
    standard = name_tables()[0]
    renamed = gemmi.Entity(entity.name)
    renamed.entity_type, renamed.polymer_type = entity.entity_type, entity.polymer_type
    renamed.sifts_unp_acc = entity.sifts_unp_acc
    renamed.full_sequence = [
        ",".join(standard.get(name, name) for name in item.split(",")) for item in entity.full_sequence
    ]
    return renamed


def _places(residues: list[gemmi.Residue], entity: gemmi.Entity) -> list[int | None]:
    """Return the number of each residue in a polymer's sequence, by alignment; None for a residue outside it."""
    alone = gemmi.Structure()
    alone.add_model(gemmi.Model(1))
    chain = gemmi.Chain("A")
    for residue in residues:
        copied = residue.clone()
        copied.subchain, copied.label_seq = "A", None
        chain.add_residue(copied)
    alone[0].add_chain(chain)
    alone.entities = [entity]
    alone.entities[0].subchains = ["A"]
    alone.assign_label_seq_id(True)
    return [residue.label_seq for residue in alone[0][0]]


def remark_number(remark: str) -> int | None:
    """Return the number of a REMARK line; None where it has none."""
    number = remark[6:10].strip()
    return int(number) if number.isdecimal() else None


def _numbered(remarks: Iterable[str], number: int) -> bool:
    return any(remark_number(remark) == number for remark in remarks)


def _without(remarks: Iterable[str], numbers: Iterable[int]) -> list[str]:
    left_out = frozenset(numbers)
    return [remark for remark in remarks if remark_number(remark) not in left_out]
