"""What the folder of a series records, and what is said where that is damaged."""

import json

import pytest

from openmm_density.errors import InputError
from openmm_density.fitting import find_protocol
from openmm_density.series.settings import SETTINGS, START, Settings, Start


@pytest.mark.parametrize("damage", [b"{", b"[1]", b"\xff\xfe"])
def test_a_damaged_file_is_told_in_one_sentence(tmp_path, damage):
    model = tmp_path / "model.pdb"
    model.write_text("END\n")
    settings = Settings(str(model), (), (), 5.0, {})
    settings.write(tmp_path)
    settings.write(tmp_path)
    for name, read in ((SETTINGS, settings.write), (START, Start.read)):
        (tmp_path / name).write_bytes(damage)
        with pytest.raises(InputError, match=f"{name}: it is damaged, so that the series cannot go on"):
            read(tmp_path)


def test_a_series_of_an_earlier_version_goes_on_as_it_was_recorded(tmp_path):
    model = tmp_path / "model.pdb"
    model.write_text("END\n")
    protocols = {name: find_protocol("standard", 5.0) for name in ("first", "next")}
    assert protocols["first"].b_factors == "auto"

    def asked(**options):
        return Settings(str(model), (), (), 5.0, protocols, fit_options={"ligand_potentials": [], **options})

    asked().write(tmp_path)
    recorded = json.loads((tmp_path / SETTINGS).read_text())
    del recorded["fit_options"]["ligand_potentials"]
    for name, protocol in recorded["protocols"].items():
        for added in ("b_factors", "occupancies"):
            del protocol[added]
        file = tmp_path / f"{name}_protocol.toml"
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(line for line in lines if not line.startswith(("b_factors", "occupancies"))))
    (tmp_path / SETTINGS).write_text(json.dumps(recorded))
    asked().write(tmp_path)
    assert Settings.read(tmp_path).protocols["next"].b_factors == "off"
    with pytest.raises(InputError, match=r"a series with other settings \(fit_options\)"):
        asked(ligand_potentials=["a.safetensors"]).write(tmp_path)
