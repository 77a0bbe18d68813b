"""What is told of replicas that exchanged."""

from openmm_density.fitting.output.exchanges import exchanged_in_words

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
        "3 replicas of 20 to 200 kJ/mol per fitted atom, 12-12% of exchanges accepted, 1 round trip, rung 2 of 3 went on; 40 s"
    )
    interrupted = {name: value for name, value in EXCHANGE.items() if name != "chosen"}
    assert exchanged_in_words([interrupted | {"acceptance": [None, None], "round_trips": 0}]) == (
        "3 replicas of 20 to 200 kJ/mol per fitted atom, none tried, 0 round trips; 40 s"
    )
