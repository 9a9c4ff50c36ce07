"""The files in config/ are right, and say of every section what it is for."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from lrb.query.linear_road import linear_road
from lrb.schema import INPUT
from policies.balance.registry import make_balancer
from policies.balance.settings import BalanceSettings
from policies.scaling.settings import ScalingSettings
from seep.cli.commands import load_query
from seep.cli.flags import Flags
from seep.cli.settings import settings_of
from seep.config.check import FileVerdict, verdict
from seep.config.clusters import Ec2File
from seep.config.files import content_of, read_policy, read_settings
from seep.config.kinds import ConfigKind, kind_of
from seep.config.policy import PolicyFile
from seep.sinks import collect
from seep.sources import memory
from seep.workloads.wordcount import wordcount

FOLDER = Path(__file__).parents[2] / "config"
FILES = sorted(FOLDER.glob("*.yaml"))
POLICIES = [file for file in FILES if kind_of(content_of(file)) is ConfigKind.POLICY]
#: Of a policy: the whole of a run, or one thing that it shows.
SECTIONS = (
    ["run", "vm", "pool", "scaling"],
    ["run", "storage"],
    ["run", "migration"],
    ["run", "backup"],
    ["run", "migration", "balance"],
)


def comment(file: Path, section: str) -> re.Match[str] | None:
    """The comment that tells what a section of a file is for."""
    return re.search(rf"^# {section}: \w.*[.,…]", file.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_files_that_the_documents_speak_of_are_there() -> None:
    assert {file.stem for file in POLICIES} >= {
        "small-vms",
        "seep-paper",
        "true-rate",
        "latency",
        "schedule",
        "cloud-pool",
        "migration",
        "replicas",
        "balance",
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_shipped_file_is_fine(file: Path) -> None:
    found = verdict(file)
    assert found == FileVerdict(found.kind, found.settings, problems=())


@pytest.mark.parametrize("file", POLICIES, ids=lambda file: file.stem)
def test_a_shipped_policy_says_of_every_section_what_it_is_for(file: Path) -> None:
    sections = list(content_of(file))
    assert sections in SECTIONS
    assert [section for section in sections if not comment(file, section)] == []


@pytest.mark.parametrize("file", POLICIES, ids=lambda file: file.stem)
def test_a_shipped_policy_is_what_a_run_takes(file: Path) -> None:
    policy, options = read_policy(file), settings_of(Flags(policy=file)).options
    taken = {each.name for each in fields(options)} & PolicyFile.model_fields.keys()
    assert taken >= {"vm", "pool", "storage", "scaling"}
    assert [name for name in taken if getattr(options, name) != getattr(policy, name)] == []


def test_what_a_shipped_policy_says_of_a_balancer_are_its_defaults() -> None:
    balance = read_policy(FOLDER / "balance.yaml").balance
    assert make_balancer(balance) == make_balancer(BalanceSettings())
    assert (balance.window, balance.history) == (BalanceSettings().window, BalanceSettings().history)


def test_the_cluster_file_of_ec2_says_all_settings_and_what_holds_without_them() -> None:
    shipped, default = read_settings(FOLDER / "ec2.yaml")[1], Ec2File.model_validate({"ec2": {}}).ec2
    assert isinstance(shipped, Ec2File)
    assert content_of(FOLDER / "ec2.yaml")["ec2"].keys() == type(default).model_fields.keys()
    for role in ("master", "worker"):
        assert shipped.ec2.machine_type(role) == default.machine_type(role)
    without = {"region": True, "machines": {"master", "worker"}}
    assert shipped.ec2.model_dump(exclude=without) == default.model_dump(exclude=without)


def test_the_paper_s_numbers_are_the_defaults_of_the_detector() -> None:
    scaling = read_policy(FOLDER / "seep-paper.yaml").scaling
    assert scaling.detector == ScalingSettings().detector
    assert (scaling.detector.report, scaling.detector.consecutive, scaling.detector.cpu) == (5.0, 2, 0.7)


@pytest.mark.parametrize("file", POLICIES, ids=lambda file: file.stem)
def test_the_commands_in_a_shipped_policy_name_files_that_are_there(file: Path) -> None:
    named = re.findall(r"(?:config|examples)/[\w-]+\.\w+", file.read_text(encoding="utf-8"))
    assert f"config/{file.name}" in named
    assert [name for name in named if not (FOLDER.parent / name).exists()] == []


def shown_with(file: Path) -> set[tuple[str, str]]:
    """The commands by which the file itself, or an example, says that it is used: `run` or a workload, and a query."""
    texts = [each.read_text(encoding="utf-8") for each in (file, *sorted((FOLDER.parent / "examples").glob("*.py")))]
    shown = re.findall(rf"seep (\w+) (\S*).* --policy config/{file.name}", "\n".join(texts))
    return {(command, query if command == "run" else "") for command, query in shown if query != "job.py:query"}


def operators_of(command: str, query: str) -> set[str]:
    match command:
        case "wordcount":
            return set(wordcount().vertices)
        case "lrb":
            return set(linear_road(memory(INPUT.empty_table(), time="time"), collect()).vertices)
        case _:
            return set(load_query(query.replace("examples/", "examples.").replace(".py:", ":")).vertices)


def operators_named_in(file: Path) -> set[str]:
    policy = read_policy(file)
    steps = policy.scaling.settings.get("at", [])
    return {
        *policy.run.parallelism,
        *policy.scaling.operators,
        *policy.backup.operators,
        *(policy.balance.operators or ()),
        *(operator for step in steps for operator in step["operators"]),
    }


@pytest.mark.parametrize("file", POLICIES, ids=lambda file: file.stem)
def test_the_operators_that_a_shipped_policy_names_are_those_of_the_queries_it_is_shown_with(file: Path) -> None:
    shown = shown_with(file)
    assert shown or file.stem == "durable"  # that one is shown with a query of the reader's
    assert [each for each in shown if not operators_named_in(file) <= operators_of(*each)] == []
