"""What is told of replicas that exchanged."""

from openmm_density.extensions.exchange import exchange_note, exchanged_in_words

EXCHANGE = {
    "replicas": 3,
    "strengths": [20.0, 63.2456, 200.0],
    "acceptance": [0.12, None],
    "round_trips": 1,
    "seconds": 40.2,
    "chosen": 1,
}


def test_a_line_tells_of_the_ladder_its_exchanges_and_what_went_on():
    assert exchanged_in_words([]) is None
    assert exchanged_in_words([EXCHANGE]) == (
        "3 replicas of 20 to 200 kJ/mol per fitted atom, 12 to 12% of exchanges accepted, 1 round trip, rung 2 of 3 went on; 40 s"
    )
    interrupted = {name: value for name, value in EXCHANGE.items() if name != "chosen"}
    assert exchanged_in_words([interrupted | {"acceptance": [None, None], "round_trips": 0}]) == (
        "3 replicas of 20 to 200 kJ/mol per fitted atom, none tried, 0 round trips; 40 s"
    )


def test_replicas_that_hardly_exchange_are_noted_with_how_many_would():
    rare = EXCHANGE | {"acceptance": [0.3, 0.01], "replicas_needed": 19}
    assert "about 19 replicas" in exchange_note([rare])
    for good in ({"acceptance": [0.3, 0.2]}, {"replicas_needed": None}, {"replicas_needed": 3}):
        assert exchange_note([rare | good]) is None
    assert exchange_note([]) is None
