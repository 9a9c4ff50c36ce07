"""Settings: defaults, policy file and flags put together, and what is refused in each."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from primitives.errors import UserError
from seep.cli.flags import Flags, RateProfile
from seep.cli.policy import RunSection, read_policy
from seep.cli.settings import settings_of
from seep.runtime.options import RunOptions
from seep.sources.rate import Profile, Rate


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return tmp_path / "policy.yaml"


def test_with_nothing_said_everything_is_as_the_options_have_it() -> None:
    settings = settings_of(Flags())
    assert settings.options == RunOptions()
    assert (settings.rate, settings.strikes, dict(settings.parallelism)) == (None, (), {})


def test_flags_are_read_in_their_units() -> None:
    flags = Flags(epoch="20ms", checkpoint="none", seconds="1min", rate="20k", rate_profile=RateProfile.SPIKE, nodes=3)
    settings = settings_of(flags)
    assert settings.options == RunOptions(epoch=0.02, checkpoint=None, seconds=60.0, nodes=3)
    assert settings.rate == Rate(20_000, Profile.SPIKE)


def test_a_flag_goes_before_the_file_and_the_file_before_the_command(policy: Path) -> None:
    policy.write_text("run: {epoch: 10ms, seconds: 20, parallelism: {a: 2, b: 2}}")
    flags = Flags(policy=policy, epoch="5ms", parallelism=["b=3"])
    settings = settings_of(flags, seconds=30.0, rate=100.0, epoch=1.0)
    assert (settings.options.epoch, settings.options.seconds) == (0.005, 20.0)
    assert settings.rate == Rate(100.0)
    assert settings.parallelism == {"a": 2, "b": 3}


def test_no_limit_goes_before_a_default_rate() -> None:
    assert settings_of(Flags(rate="max"), rate=100.0).rate is None


def test_a_policy_file_can_say_all_that_there_is_to_say_of_a_run(policy: Path) -> None:
    assert {each.name for each in fields(RunOptions)} <= RunSection.model_fields.keys()
    policy.write_text(
        "run:\n  epoch: 20ms\n  checkpoint: none\n  window: 8\n  buffer_budget: 64MiB\n  rate: 500\n"
        "  rate_profile: ramp\n  rate_period: 2min\n  tls: {certificate: c.pem, key: k.pem}\n"
    )
    settings = settings_of(Flags(policy=policy))
    assert settings.options == RunOptions(
        epoch=0.02, checkpoint=None, window=8, buffer_budget=64 << 20, tls=(Path("c.pem"), Path("k.pem"))
    )
    assert settings.rate == Rate(500, Profile.RAMP, 120.0)


def test_defaults_of_the_file_are_those_of_the_options() -> None:
    section, options = RunSection(), RunOptions()
    assert {each.name: getattr(section, each.name) for each in fields(RunOptions)} == {
        each.name: getattr(options, each.name) for each in fields(RunOptions)
    }


@pytest.mark.parametrize("content", ["", "run: {}"])
def test_a_file_may_say_nothing(policy: Path, content: str) -> None:
    policy.write_text(content)
    assert read_policy(policy) == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("run: {epock: 1s}", "run.epock is unknown; known are epoch, checkpoint"),
        ("scale: 1", "scale is unknown; known are run"),
        ("run: {tls: {cert: c.pem}}", "run.tls"),
        ("run: {epoch: fast}", "run.epoch is 'fast': 'fast' is no length of time"),
        ("run: {parallelism: {counter: 0}}", "run.parallelism.counter is 0"),
        ("run: {nodes: many}", "run.nodes is 'many'"),
        ("run: {rate_profile: wild}", "run.rate_profile is 'wild'"),
        ("- run", "the file is ['run']"),
        ("run: [", "is not YAML"),
    ],
)
def test_a_wrong_field_is_refused_with_file_and_path(policy: Path, content: str, message: str) -> None:
    policy.write_text(content)
    with pytest.raises(UserError, match=re.escape(message)) as refused:
        read_policy(policy)
    assert str(policy) in str(refused.value)


def test_a_file_that_is_not_there_is_refused(policy: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_policy(policy)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (Flags(epoch="soon"), "--epoch: 'soon' is no length of time"),
        (Flags(seconds="0"), "--seconds: '0' is no length of time to wait for"),
        (Flags(seconds="inf"), "--seconds: 'inf' is no length of time to wait for"),
        (Flags(rate="0"), "--rate: '0' is no rate"),
        (Flags(rate="fast"), "--rate: 'fast' is no rate"),
        (Flags(rate_profile=RateProfile.RAMP), "a rate profile (ramp) needs a rate"),
        (Flags(parallelism=["counter"]), "--parallelism 'counter': write an operator and its instances"),
        (Flags(parallelism=["counter=0"]), "--parallelism 'counter=0'"),
        (Flags(chaos="boom"), "chaos 'boom'"),
        (Flags(nodes=0), "option 'nodes' is 0"),
        (Flags(report=Path("/no/such/place/r.json")), "there is no directory /no/such/place"),
    ],
)
def test_a_wrong_flag_is_refused_by_its_name(flags: Flags, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        settings_of(flags)


def test_the_profiles_of_the_command_line_are_those_of_the_sources() -> None:
    assert [str(profile) for profile in RateProfile] == [str(profile) for profile in Profile]
