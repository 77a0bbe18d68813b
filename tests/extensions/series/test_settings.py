"""What the folder of a series records, and what is said where that is damaged."""

import pytest

from openmm_density.base.errors import InputError
from openmm_density.extensions.series.settings import (
    SETTINGS,
    START,
    SeriesSettings,
    SeriesStart,
    recorded_platform,
)


@pytest.mark.parametrize("damage", [b"{", b"[1]", b"\xff\xfe"])
def test_a_damaged_file_is_told_in_one_sentence(tmp_path, damage):
    model = tmp_path / "model.pdb"
    model.write_text("END\n")
    settings = SeriesSettings(str(model), (), (), 5.0, {}, fit_options={"platform": "CUDA"})
    assert recorded_platform(tmp_path) is None
    settings.write(tmp_path)
    settings.write(tmp_path)
    assert recorded_platform(tmp_path) == "CUDA"
    for name, read in ((SETTINGS, settings.write), (SETTINGS, recorded_platform), (START, SeriesStart.read)):
        (tmp_path / name).write_bytes(damage)
        with pytest.raises(InputError, match=f"{name}: it is damaged, so that the series cannot go on"):
            read(tmp_path)
