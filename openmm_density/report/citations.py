"""What to cite, by what took part."""

from __future__ import annotations

from collections.abc import Iterable

_CITATIONS = {
    "openmm": "OpenMM 8: P. Eastman et al., J. Phys. Chem. B 128, 109 (2024), doi:10.1021/acs.jpcb.3c06662",
    "amber14": "Amber ff14SB: J. A. Maier et al., J. Chem. Theory Comput. 11, 3696 (2015), doi:10.1021/acs.jctc.5b00255",
    "charmm36": "CHARMM36: J. Huang, A. D. MacKerell, J. Comput. Chem. 34, 2135 (2013), doi:10.1002/jcc.23354",
    "q_score": "Q-scores: G. Pintilie et al., Nat. Methods 17, 328 (2020), doi:10.1038/s41592-020-0731-1",
    "ramachandran": "Ramachandran regions: S. C. Lovell et al., Proteins 50, 437 (2003), doi:10.1002/prot.10286",
    "gemmi": "gemmi: M. Wojdyr, J. Open Source Softw. 7, 4200 (2022), doi:10.21105/joss.04200",
    "mdtraj": "MDTraj: R. T. McGibbon et al., Biophys. J. 109, 1528 (2015), doi:10.1016/j.bpj.2015.08.015",
    "dask": "Dask: M. Rocklin, Proc. 14th Python in Science Conf. (2015), 126, doi:10.25080/Majora-7b98e3ed-013",
    "3dmol": "3Dmol.js, which draws the view: N. Rego, D. Koes, Bioinformatics 31, 1322 (2015), "
    "doi:10.1093/bioinformatics/btu829",
}


def citations(parts: Iterable[str]) -> list[str]:
    """Return a citation for each part that has one: programs, force fields and measures, by their names in lower case."""
    return [_CITATIONS[part] for part in parts if part in _CITATIONS]
