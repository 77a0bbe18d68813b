"""Ideal bonds, angles, planes, chiral volumes and torsions of a model, by the CCP4 monomer library's values.

`library` reads monomers, links and modifications (CCP4's own folder, dictionaries, or the table ``standard.cif``), `templates` is
what it makes of them, and `terms` applies these to a topology.
"""
