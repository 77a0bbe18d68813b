"""Domains and copies that lie beside their density come back to where they were simulated."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import gemmi
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.extensions.placing.assembly import Beam, Candidates, ChainLink, clashing, without_symmetry
from openmm_density.extensions.placing.bodies import LEAST, PlacedBody
from openmm_density.extensions.placing.output import placing_told
from openmm_density.extensions.placing.parts import rigid_parts, write_placed
from openmm_density.extensions.placing.placing import place_parts
from openmm_density.extensions.placing.search import Body, BodyPoses
from openmm_density.extensions.placing.words import Part, parse_parts
from openmm_density.maps.model_density import ModelDensity
from openmm_density.maps.simulated_map import empty_grid
from openmm_density.models import Model, read_model
from openmm_density.models.confidence import Confidence

from ...cli.commands import run
from ...conftest import PROJECT
from ...predicted_models import write_prediction

RESOLUTION = 8.0
# The AMP-binding domain and the lid of adenylate kinase.
DOMAINS = {"nmp": range(30, 68), "lid": range(118, 161)}


def write_domains(path: Path, names: tuple[str, ...], thrown: bool) -> Path:
    """Write some domains of adenylate kinase as one chain, where they are or each turned and shifted by itself."""
    structure = gemmi.read_structure(str(PROJECT / "examples" / "data" / "adk_closed.pdb"))
    structure.remove_hydrogens()
    chain = structure[0][0]
    for place in reversed(range(len(chain))):
        number = chain[place].seqid.num
        domain = next((name for name in names if number in DOMAINS[name]), None)
        if domain is None:
            del chain[place]
        elif thrown:
            index = list(DOMAINS).index(domain)
            turn = Rotation.random(random_state=index).as_matrix()
            for atom in chain[place]:
                atom.pos = gemmi.Position(*(turn @ np.array(atom.pos.tolist()) + 100.0 * (index + 1)))
    structure.write_pdb(str(path))
    return path


@lru_cache
def truth(folder: Path) -> tuple[Model, DensityMap]:
    """Return both domains where they are, and their map with noise."""
    model = read_model(write_domains(folder / "truth.pdb", ("nmp", "lid"), False))
    density = ModelDensity(model.topology, RESOLUTION)
    _, matrix, origin = empty_grid(density, model.positions, 2.5, 0.0)
    start, data = density.on_grid(model.positions, matrix, origin)
    noise = np.random.default_rng(0).normal(scale=0.3 * data.std(), size=data.shape)
    density_map = DensityMap(data + noise, matrix, origin + matrix @ start)
    return model, density_map.crop(model.positions, 6.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("placing")


def ca(model: Model) -> dict[int, np.ndarray]:
    return {
        record.residue_number: place
        for record, place in zip(model.records, model.positions)
        if record.name == "CA"
    }


def rmsd(model: Model, expected: Model) -> float:
    places, others = ca(model), ca(expected)
    assert places.keys() == others.keys()
    return float(np.sqrt(np.mean([((places[k] - others[k]) ** 2).sum() for k in places])))


def test_domains_come_back_from_where_they_were_thrown(folder: Path) -> None:
    model, density_map = truth(folder)
    thrown, path = write_domains(folder / "thrown.pdb", ("nmp", "lid"), True), folder / "placed.cif"
    assert not place_parts([str(thrown)], "domains", density_map, RESOLUTION, path)
    placed = read_model(path)
    assert rmsd(placed, model) < 1.5
    told = json.loads(path.with_suffix(".json").read_text())
    assert told["similarity"][1] >= told["similarity"][0] > 0.7
    assert [each["chains"] for each in told["bodies"]] == [["A"], ["A"]]


def test_copies_become_chains_of_one_model(folder: Path) -> None:
    model, path = truth(folder)[0], folder / "copies.cif"
    parts, kinds, _ = rigid_parts([(model, 2)], "auto")
    turn = Rotation.random(random_state=3).as_matrix()
    places = [PlacedBody(0, np.eye(3), kinds[0].centre, 9.0), PlacedBody(0, turn, np.full(3, 90.0), 9.0)]
    bodies = write_placed(path, parts, kinds, [[[place] for place in places]])
    copies = read_model(path)
    assert {record.chain for record in copies.records} == {"A", "B"}
    assert {(chain, body) for (chain, _, _), body in bodies.items()} == {("A", 0), ("B", 1)}
    first, second = np.split(copies.positions, 2)
    assert np.allclose(first, model.positions, atol=2e-3)
    assert np.allclose(second, (model.positions - kinds[0].centre) @ turn.T + 90.0, atol=2e-3)


def test_a_placed_prediction_is_read_as_its_file_is(tmp_path: Path) -> None:
    given = read_model(write_prediction(tmp_path / "predicted.pdb"))
    parts, kinds, _ = rigid_parts([(given, 1)], "auto")
    path = tmp_path / "placed.cif"
    write_placed(path, parts, kinds, [[[PlacedBody(0, np.eye(3), kinds[0].centre, 9.0)]]])
    placed = read_model(path)
    assert (
        placed.confidence is not None
        and given.confidence is not None
        and placed.confidence.column is not None
    )
    assert np.allclose(placed.confidence.column, given.confidence.plddt, atol=0.01)
    assert np.allclose(placed.b_factors, given.b_factors, rtol=2e-3)


def test_copies_keep_what_a_prediction_is_sure_of_and_the_links_of_a_model(
    small_data: Path, tmp_path: Path
) -> None:
    predicted = read_model(write_prediction(tmp_path / "predicted.pdb"))
    linked = read_model(small_data / "emd21457_ntd" / "6vyb_Ndom.pdb")
    parts, kinds, _ = rigid_parts([(predicted, 2), (linked, 1)], "auto")
    places = [PlacedBody(k, np.eye(3), 200.0 * n + kinds[k].centre, 9.0) for n, k in enumerate((0, 0, 1))]
    path = tmp_path / "placed.cif"
    write_placed(path, parts, kinds, [[[place] for place in places[:2]], [[places[2]]]])
    placed, n = read_model(path, True), len(predicted.records)
    assert placed.confidence is not None and predicted.confidence is not None
    for copy in (slice(n), slice(n, 2 * n)):
        assert np.allclose(placed.confidence.plddt[copy], predicted.confidence.plddt, atol=0.01)
    assert np.isnan(placed.confidence.plddt[2 * n :]).all()
    assert np.allclose(placed.b_factors[2 * n :], linked.b_factors, atol=0.01)
    written = gemmi.read_structure(str(path))
    assert len({residue.subchain for chain in written[0] for residue in chain}) >= 3
    bridges = [each for each in written.connections if each.type == gemmi.ConnectionType.Disulf]
    ends = [written[0].find_cra(end).atom for each in bridges for end in (each.partner1, each.partner2)]
    assert len(ends) > 0 and all(a.pos.dist(b.pos) < 2.2 for a, b in zip(ends[::2], ends[1::2]))


def test_a_broken_chain_is_cut_where_it_is_broken(folder: Path) -> None:
    thrown = read_model(write_domains(folder / "thrown.pdb", ("nmp", "lid"), True))
    (part,), kinds, links = rigid_parts([(thrown, 1)], "domains")
    numbers = np.array([record.residue_number for record in thrown.records])
    assert part.n_bodies == 2
    for body in range(2):
        (domain,) = (d for d in DOMAINS.values() if numbers[part.body_of == body][0] in d)
        assert set(numbers[part.body_of == body]) == set(domain)
    assert [kind.label for kind in kinds] == ["thrown.pdb A 30-67", "thrown.pdb A 118-160"]
    (link,) = links
    assert link.most == pytest.approx(3.8 * 51 + 4.0)
    whole = read_model(write_domains(folder / "nmp_alone.pdb", ("nmp",), False))
    with pytest.raises(InputError, match="no domains"):
        rigid_parts([(whole, 1)], "domains")
    (part,), _, _ = rigid_parts([(read_model(PROJECT / "examples" / "data" / "adk_open.pdb"), 1)], "domains")
    assert part.n_bodies == 3  # By its contacts


def test_a_chain_of_sugars_goes_with_the_nearest_body(folder: Path, small_data: Path) -> None:
    structure = gemmi.read_structure(str(write_domains(folder / "beside.pdb", ("lid",), False)))
    for chain in gemmi.read_structure(str(small_data / "zoo" / "3zw1_anomers.pdb"))[0]:
        structure[0].add_chain(chain)
    structure.write_pdb(str(folder / "beside.pdb"))
    model = read_model(folder / "beside.pdb")
    (part,), _, _ = rigid_parts([(model, 1)], "chains")
    assert {record.chain for record in model.records} == {"A", "B", "E"} and part.n_bodies == 1


def test_a_chain_is_not_torn_at_a_hinge(folder: Path) -> None:
    model = read_model(PROJECT / "examples" / "data" / "adk_open.pdb")
    (part,), kinds, _ = rigid_parts([(model, 1)], "domains")
    turned = [
        PlacedBody(k, Rotation.from_rotvec([0, 0, 0.2 * k]).as_matrix(), kind.centre, 9.0)
        for k, kind in enumerate(kinds)
    ]
    places, before = (
        ca(replace(model, positions=each)) for each in (part.moved(turned, kinds).positions, model.positions)
    )
    numbers = sorted(places)
    steps = [
        [np.linalg.norm(found[b] - found[a]) for a, b in pairwise(numbers)] for found in (places, before)
    ]
    assert np.abs(np.subtract(*steps)).max() < 2.5
    apart = np.array([np.linalg.norm(places[k] - before[k]) for k in numbers])
    assert apart.max() > 2.0


def test_expected_errors_cut_domains_and_what_is_unsure_is_not_searched(folder: Path) -> None:
    model = truth(folder)[0]
    first = np.array([record.residue_number for record in model.records if record.name == "CA"]) < 68
    errors = np.where(first[:, None] == first, 2.0, 20.0).astype(np.float32)
    numbers = np.array([record.residue_number for record in model.records])
    plddt = np.where(numbers > 155, 30.0, 90.0)
    model = replace(model, confidence=Confidence(plddt, "AlphaFold", None, "its header", errors=errors))
    (part,), kinds, _ = rigid_parts([(model, 1)], "domains")
    assert [kind.label for kind in kinds] == ["truth.pdb A 118-160", "truth.pdb A 30-67"]
    assert len(kinds[0].body.atoms) == ((numbers > 67) & (numbers <= 155)).sum()
    assert (part.body_of == (numbers < 68)).all()


def test_words_name_models_and_copies(tmp_path: Path) -> None:
    assert parse_parts(["a.pdb", "b.cif:3"]) == [Part(Path("a.pdb"), 1), Part(Path("b.cif"), 3)]
    named = tmp_path / "c.pdb:2"
    named.touch()
    assert parse_parts([str(named)]) == [Part(named, 1)]
    for word in ("b.cif:0", "b.cif:x", "b.cif:", "b.cif:-1"):
        with pytest.raises(InputError, match="how many copies"):
            parse_parts([word])
    with pytest.raises(InputError, match="no more than"):
        parse_parts(["a.cif:61"])


def test_commands_refuse_what_cannot_be_placed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_domains(tmp_path / "a.pdb", ("nmp",), False)
    target = tmp_path / "map.mrc"
    DensityMap(np.random.default_rng(0).random((8, 8, 8)), np.eye(3), np.zeros(3)).write(target)
    given = ["--resolution", 8, "--output", tmp_path / "out"]
    assert run("fit", f"{model}:0", target, *given) == 2
    assert "how many copies" in capsys.readouterr().err
    assert run("fit", model, tmp_path / "none.pdb:2", target, *given) == 2
    assert "none.pdb: there is no such file" in capsys.readouterr().err
    assert run("fit", model, model, target, *given) == 2
    assert "a.pdb is 25 Å long" in capsys.readouterr().err
    amplitudes = PROJECT / "tests" / "data" / "xray_1g8a_P21"
    (data,) = amplitudes.glob("*.mtz*")
    assert run("fit", f"{model}:2", data, *given, "--amplitudes", "FP,SIGFP") == 2
    assert "are placed in maps only" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def body_of_points(points: np.ndarray, names: str) -> Body:
    return Body(points, np.ones(len(points)), np.ones(len(points), dtype=bool), np.array(list(names)))


def poses_at(
    places: list[tuple[float, float, float]], scores: list[float], turns: list[float] | None = None
) -> BodyPoses:
    turned = Rotation.from_rotvec([[0, 0, turn] for turn in turns or [0.0] * len(places)])
    return BodyPoses(np.array(scores), turned.as_matrix(), np.array(places))


def test_poses_of_a_symmetric_body_are_one() -> None:
    points = np.array([[10.0, 0, 0], [-10, 0, 0], [0, 5, 0], [0, -5, 0]])
    poses = poses_at([(0, 0, 0), (0.1, 0, 0), (0, 0, 0)], [3.0, 2.0, 1.0], [0.0, np.pi, np.pi / 2])
    assert len(without_symmetry(body_of_points(points, "aabb"), poses)) == 2
    assert len(without_symmetry(body_of_points(points, "abcd"), poses)) == 3


def test_sets_neither_overlap_nor_tear_the_chain() -> None:
    body = body_of_points(np.array([[0.0, 0, 0], [1, 0, 0], [2, 0, 0]]), "abc")
    twice = Candidates(0, body, 2, poses_at([(0, 0, 0), (1, 1, 0), (30, 0, 0)], [5.0, 4.0, 3.0]))
    assert clashing(twice.traces()[0], twice).tolist() == [True, True, False]
    score, chosen = Beam([twice]).best()[0]
    assert chosen == ((0, 0), (0, 2)) and score == 8.0
    one = replace(twice, copies=1)
    other = Candidates(1, body, 1, poses_at([(0, 60, 0), (0, 8, 0)], [5.0, 4.0]))
    assert Beam([one, other]).best()[0][1] == ((0, 0), (1, 0))
    assert Beam([one, other], [ChainLink(0, 0, 1, 0, 10.0)]).best()[0][1] == ((0, 0), (1, 1))
    crowded = replace(twice, copies=3)
    assert not Beam([crowded]).best()


def test_what_is_no_better_than_wrong_places_is_doubted() -> None:
    sure = {
        "body": "a.pdb",
        "chains": ["A"],
        "centre": [1.0, 2.0, 3.0],
        "score": LEAST + 3,
        "other_place": None,
    }
    unsure = {**sure, "chains": ["B"], "score": LEAST - 1}
    other = {"centre": [9.0, 9.0, 9.0], "turned_by": 90.0, "less": 0.4}
    assert not placing_told("placing", {"bodies": [sure]}).doubts
    (doubt,) = placing_told("placing", {"bodies": [sure, unsure]}).doubts
    assert f"a.pdb as chain B ({LEAST - 1:.1f})" in doubt.sentence and "chain A" not in doubt.sentence
    (doubt,) = placing_told("placing", {"bodies": [{**sure, "other_place": other}]}).doubts
    assert "(9, 9, 9)" in doubt.sentence and "(1, 2, 3)" in doubt.sentence
