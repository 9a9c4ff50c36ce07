import pytest

from seep.driver.detector import Detector


@pytest.fixture
def detector() -> Detector:
    detector = Detector(patience=3.0)
    detector.joined("n1", 0.0)
    detector.joined("n2", 0.0)
    return detector


def test_a_node_that_is_heard_of_is_not_lost(detector: Detector) -> None:
    for now in (2.0, 4.0, 6.0):
        detector.heard("n1", now)
        detector.heard("n2", now)
        assert detector.lost(now + 2.9) == []


def test_silence_beyond_patience_is_a_loss_and_is_said_once(detector: Detector) -> None:
    detector.heard("n1", 3.0)
    assert detector.lost(3.5) == [("n2", "silent for 3.5 s")]
    assert detector.lost(4.0) == []


def test_a_lost_link_is_not_a_lost_node(detector: Detector) -> None:
    detector.broken("n1", refused=False)
    assert detector.lost(1.0) == []
    detector.restored("n1", 2.5)
    detector.heard("n2", 2.5)
    assert detector.lost(5.0) == []


def test_a_link_that_stays_broken_is_named_when_patience_ends(detector: Detector) -> None:
    detector.heard("n2", 3.0)
    detector.broken("n1", refused=False)
    assert detector.lost(3.2) == [("n1", "silent for 3.2 s, its link is broken")]


def test_a_refused_connection_is_a_loss_at_once(detector: Detector) -> None:
    detector.broken("n2", refused=True)
    assert detector.lost(0.01) == [("n2", "connection refused: its process is gone")]


def test_the_word_of_spark_is_a_loss_at_once(detector: Detector) -> None:
    detector.ended("n1", "Python worker exited")
    assert detector.lost(0.01) == [("n1", "Python worker exited")]


def test_what_is_said_of_a_node_that_never_joined_or_was_given_up_changes_nothing(detector: Detector) -> None:
    detector.ended("n1", "Python worker exited")
    detector.lost(0.0)
    for name in ("n1", "n9"):
        detector.heard(name, 1.0)
        detector.broken(name, refused=True)
        detector.ended(name, "whatever")
        detector.restored(name, 1.0)
    assert detector.lost(2.0) == []


def test_silence_while_nobody_listened_is_nobodys_fault(detector: Detector) -> None:
    for each in range(1, 11):
        detector.heard("n1", each / 10)
        assert detector.lost(each / 10) == []
    assert detector.lost(9.0) == []  # this process was stopped, or had no processor, for eight seconds
    detector.heard("n1", 9.1)
    assert [found for each in range(91, 120) if (found := detector.lost(each / 10))] == [[("n2", "silent for 3.1 s")]]
