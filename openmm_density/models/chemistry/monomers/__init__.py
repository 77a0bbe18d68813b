"""Ideal bonds, angles, planes, chiral volumes and torsions of a model, by the CCP4 monomer library's values.

`library` reads monomers, links and modifications (CCP4's own folder, dictionaries, or the table ``standard.cif``) and makes
`templates` of them, which `terms` applies to a topology.
"""
