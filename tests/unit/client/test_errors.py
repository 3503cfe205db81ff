"""What each code of the contract's table becomes in the SDK."""

from __future__ import annotations

import copy
import pickle

import pytest
from aiokafka import errors as kafka_errors

from sidecar.client import (
    OwnError,
    ProducerBusyError,
    ProducerFencedError,
    SequenceError,
    SidecarError,
    SidecarUnavailableError,
)
from sidecar.client.errors import OF_KAFKA, OF_OWN, code_of, of_kafka, of_own
from sidecar.v1 import control_pb2 as control

KAFKA = [
    (90, ProducerFencedError, False),
    (47, ProducerFencedError, False),
    (44, ProducerBusyError, True),
    (87, SequenceError, False),
    (5, SidecarUnavailableError, True),
    (6, SidecarUnavailableError, True),
    (7, SidecarUnavailableError, True),
    (13, SidecarUnavailableError, True),
    (14, SidecarUnavailableError, True),
    (15, SidecarUnavailableError, True),
    (16, SidecarUnavailableError, True),
    (19, SidecarUnavailableError, True),
    (20, SidecarUnavailableError, True),
    (56, SidecarUnavailableError, True),
    (2, SidecarError, True),
    (3, SidecarError, True),
    (10, SidecarError, False),
    (29, SidecarError, False),
    (32, SidecarError, False),
    (42, SidecarError, False),
    (43, SidecarError, False),
    (45, SidecarError, False),
    (48, SidecarError, False),
    (53, SidecarError, False),
    (55, SidecarError, False),
    (9, SidecarUnavailableError, True),
    (-1, SidecarUnavailableError, True),
    (12_345, SidecarError, False),
]
OWN = [
    (1, SidecarError, False),
    (2, SidecarUnavailableError, True),
    (3, SidecarUnavailableError, True),
    (4, ProducerBusyError, True),
    (5, ProducerBusyError, False),
    (6, ProducerFencedError, False),
    (7, SidecarError, False),
    (8, SidecarError, False),
    (9, ProducerBusyError, True),
    (10, ProducerBusyError, True),
    (99, SidecarError, False),
]


@pytest.mark.parametrize(("code", "kind", "retryable"), KAFKA)
def test_what_a_code_of_kafka_becomes(code: int, kind: type[SidecarError], retryable: bool) -> None:
    error = of_kafka(code, "why")
    assert (type(error), error.code, error.retryable, error.message) == (kind, code, retryable, "why")
    assert not isinstance(error.code, OwnError)
    assert str(code) in str(error)
    assert str(error).endswith(": why")


@pytest.mark.parametrize(("code", "kind", "retryable"), OWN)
def test_what_an_error_of_the_own_apis_becomes(code: int, kind: type[SidecarError], retryable: bool) -> None:
    error = of_own(code, "why")
    assert (type(error), error.code, error.retryable) == (kind, code, retryable)


def test_every_row_is_tested() -> None:
    assert OF_KAFKA.keys() <= {code for code, *_ in KAFKA}
    assert set(OF_OWN) == set(OwnError) <= {code for code, *_ in OWN}


def test_the_errors_of_the_own_apis_are_those_of_the_contract() -> None:
    assert {each.name: each.value for each in OwnError} == {
        name: number for name, number in control.Error.items() if number != control.NONE
    }


def test_a_fenced_producer_is_caught_by_who_knows_aiokafka_alone() -> None:
    error = of_kafka(90)
    assert isinstance(error, kafka_errors.ProducerFenced)
    assert isinstance(error, kafka_errors.KafkaError)
    assert str(error) == "PRODUCER_FENCED (90)"


@pytest.mark.parametrize("error", [of_kafka(90, "who"), of_own(3, "later"), of_kafka(77)])
def test_an_error_survives_being_copied_and_sent_elsewhere(error: SidecarError) -> None:
    for found in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(found) is type(error)
        assert (found.code, found.message, found.retryable) == (error.code, error.message, error.retryable)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (kafka_errors.PolicyViolationError(), 44),
        (kafka_errors.for_code(90)(), -1),
        (kafka_errors.KafkaConnectionError(), None),
    ],
)
def test_the_code_behind_an_error_of_aiokafka(error: kafka_errors.KafkaError, code: int | None) -> None:
    assert code_of(error) == code
