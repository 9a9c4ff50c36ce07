"""Checking further than the fields: what a file names is there, and takes what it is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from primitives.errors import UserError
from seep.config.check import FileVerdict, verdict
from seep.config.kinds import ConfigKind, kind_of
from vmpool.registry import make_provider
from vmpool.settings import PoolSettings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "policy.yaml"


class TwoOfAll:
    """A policy of a user's own."""

    def __init__(self, why: str) -> None:
        self.why = why

    def decide(self, history: object) -> list[object]:
        raise NotImplementedError(history)


def test_an_empty_file_is_fine(file: Path) -> None:
    file.write_text("")
    assert verdict(file) == FileVerdict(ConfigKind.POLICY, settings=0)


def test_settings_are_counted_wherever_they_stand(file: Path) -> None:
    file.write_text("run: {epoch: 1s, parallelism: {a: 1, b: 2}}\nscaling: {detector: {cpu: 0.8}}\n")
    assert verdict(file) == FileVerdict(ConfigKind.POLICY, settings=4)


def test_each_wrong_field_is_a_problem_of_its_own(file: Path) -> None:
    file.write_text("run: {epock: 1s, window: 0}\nvm: 5\n")
    problems = verdict(file).problems
    assert [problem.split()[0] for problem in problems] == ["run.window", "run.epock", "vm"]


@pytest.mark.parametrize(
    "scaling",
    [
        "{policy: cpu-threshold, settings: {step: 3}}",
        "{policy: latency, settings: {target: 1s}}",
        f"{{policy: '{__name__}:TwoOfAll', settings: {{why: because}}}}",
    ],
)
def test_a_policy_that_takes_its_settings_is_fine(file: Path, scaling: str) -> None:
    file.write_text(f"scaling: {scaling}")
    assert verdict(file).problems == ()


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        ("{policy: clever}", ["scaling.policy", "clever", "cpu-threshold"]),
        ("{policy: cpu-threshold, settings: {stepp: 3}}", ["scaling.settings.stepp is unknown", "known are step"]),
        ("{policy: latency}", ["scaling.settings.target is missing"]),
        ("{policy: 'no.such.module:Clever'}", ["scaling.policy", "no.such.module"]),
        (f"{{policy: '{__name__}:TwoOfAll', settings: {{when: now}}}}", ["scaling.settings", "when"]),
    ],
)
def test_a_policy_that_is_not_there_or_refuses_is_a_problem(file: Path, scaling: str, words: list[str]) -> None:
    file.write_text(f"scaling: {scaling}")
    (problem,) = verdict(file).problems
    assert [word for word in words if word not in problem] == []


@pytest.mark.parametrize(
    "balance",
    [
        "{balancer: hotspot, settings: {factor: 1.5}, history: 3}",
        "{balancer: autoflow}",
        f"{{balancer: '{__name__}:TwoOfAll', settings: {{why: because}}}}",
    ],
)
def test_a_balancer_that_takes_its_settings_is_fine(file: Path, balance: str) -> None:
    file.write_text(f"balance: {balance}")
    assert verdict(file).problems == ()


@pytest.mark.parametrize(
    ("balance", "words"),
    [
        ("{balancer: fair}", "balance.balancer is 'fair'; choose hotspot, autoflow, or a class of your own"),
        ("{settings: {factr: 2}}", "balance.settings.factr is unknown; known are factor, consecutive, margin, rest"),
        ("{balancer: autoflow, settings: {factor: 1.2}}", "balance.settings.factor is 1.2"),
        ("{history: 2}", "balance.settings.consecutive is 2; balance.history must be more than that"),
        ("{balancer: 'no.such.module:Clever'}", "balance.balancer is 'no.such.module:Clever': module 'no.such.module'"),
        (f"{{balancer: '{__name__}:TwoOfAll'}}", f"balance.settings: {__name__}:TwoOfAll cannot be made with {{}}"),
    ],
)
def test_a_balancer_that_is_not_there_or_refuses_is_a_problem(file: Path, balance: str, words: str) -> None:
    file.write_text(f"balance: {balance}")
    (problem,) = verdict(file).problems
    assert problem.startswith(words)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("migration: {strategy: slow}", "migration.strategy is 'slow'"),
        ("backup: {default: {replicas: 0}}", "backup.default.replicas is 0"),
        (
            "backup: {operators: {counter: {copies: 2}}}",
            "backup.operators.counter.copies is unknown; known are strategy",
        ),
    ],
)
def test_wrong_settings_of_backups_and_migration_are_problems(file: Path, said: str, words: str) -> None:
    file.write_text(said)
    (problem,) = verdict(file).problems
    assert problem.startswith(words)


@pytest.mark.parametrize(
    "pool",
    [
        "{provider: spark}",
        "{provider: standalone, settings: {memory: 2GiB}}",
        "{provider: ec2, settings: {cluster: seep}}",
        "{provider: gce, settings: {project: demo}}",
        f"{{provider: '{__name__}:TwoOfAll', settings: {{why: because}}}}",
    ],
)
def test_a_provider_that_takes_its_settings_is_fine(file: Path, pool: str) -> None:
    file.write_text(f"pool: {pool}")
    assert verdict(file).problems == ()


@pytest.mark.parametrize(
    ("pool", "problem"),
    [
        ("{provider: azure}", "pool.provider is 'azure'; choose spark, standalone, ec2, gce, or a class of your own"),
        (
            "{provider: 'no.such.module:Own'}",
            "pool.provider is 'no.such.module:Own': module 'no.such.module'",
        ),
        (f"{{provider: '{__name__}:Nothing'}}", f"pool.provider is '{__name__}:Nothing': there is no 'Nothing' in"),
        ("{settings: {cluster: seep}}", "pool.settings.cluster is unknown; known are "),
        ("{provider: ec2}", "pool.settings.cluster is missing"),
        ("{provider: standalone, settings: {memory: big}}", "pool.settings.memory is 'big': could not parse"),
    ],
)
def test_a_provider_that_is_not_there_or_refuses_is_a_problem(file: Path, pool: str, problem: str) -> None:
    file.write_text(f"pool: {pool}")
    (found,) = verdict(file).problems
    assert found.startswith(problem)


def test_the_providers_that_are_known_are_those_of_the_pool(file: Path) -> None:
    with pytest.raises(UserError) as refused:
        make_provider(PoolSettings(provider="azure"), master="local[4]", run="check")
    file.write_text("pool: {provider: azure}")
    assert verdict(file).problems == (str(refused.value),)


def test_a_cluster_file_is_told_by_its_section(file: Path) -> None:
    file.write_text("ec2: {nmae: seep}")
    found = verdict(file)
    assert found.kind is ConfigKind.EC2
    assert found.problems[0].startswith("ec2.nmae is unknown; known are name, ")


def test_a_file_for_two_providers_is_refused(file: Path) -> None:
    file.write_text("ec2: {}\ngcp: {project: p}")
    assert "gcp is unknown; known are ec2" in verdict(file).problems


@pytest.mark.parametrize("content", [None, [], "ec2", {"run": {}}, {1: 2}])
def test_what_is_no_cluster_is_taken_for_a_policy(content: object) -> None:
    assert kind_of(content) is ConfigKind.POLICY


def test_what_cannot_be_read_has_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        verdict(tmp_path / "none.yaml")
