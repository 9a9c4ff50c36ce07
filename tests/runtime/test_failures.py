import json

import pytest

from primitives.errors import EnvironmentFault, InternalError, UserError
from primitives.graph import InstanceId
from seep.node.failures import failure_from_json, failure_to_json
from seep.operators.errors import UserCodeFailed
from seep.protocol.view import Incarnation

WHERE = Incarnation(InstanceId("ratio", 1), 2)


def travelled(reason: BaseException) -> Exception:
    return failure_from_json(json.loads(json.dumps(failure_to_json("n3", WHERE, 7, reason))))


@pytest.mark.parametrize("kind", [UserError, EnvironmentFault, InternalError])
def test_a_failure_keeps_its_kind_and_says_where_it_was(kind: type[Exception]) -> None:
    found = travelled(kind("the disk is full"))
    assert type(found) is kind
    for word in ("ratio[1]", "n3", "epoch 7", "the disk is full"):
        assert word in str(found)


def test_a_failure_of_user_code_keeps_its_rows() -> None:
    found = travelled(UserCodeFailed("ratio", 7, [{"n": 1, "d": 0}], "ZeroDivisionError: division by zero"))
    assert isinstance(found, UserCodeFailed)
    assert found.rows == [{"n": 1, "d": 0}]
    assert "ratio[1] on node n3" in str(found)


def test_anything_else_is_our_own_fault_and_comes_with_its_trace() -> None:
    found = travelled(KeyError("x"))
    assert isinstance(found, InternalError)
    assert "please report" in str(found)
    assert "KeyError" in str(found)
