"""What ``--replicas`` makes of a fit."""

import pytest

from openmm_density.base.errors import InputError

from ...cli.test_fit_options import options


def test_replicas_exchange_where_the_protocol_says_so_and_else_are_an_ensemble():
    protocol = options(protocol="exchange", replicas=5).changed_protocol()
    assert protocol.replicas == 5 and any(stage.exchange for stage in protocol.stages)
    alone = options().changed_protocol()
    assert options(replicas=5).changed_protocol() == alone
    assert not any(stage.exchange for stage in alone.stages)
    for too_few in (1, 0, -2):
        with pytest.raises(InputError, match="replicas must be 2 or more for an ensemble"):
            options(replicas=too_few).changed_protocol()
