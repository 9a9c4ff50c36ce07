"""Settings: defaults, policy file and flags put together, and what is refused in each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policies.balance.settings import BalanceSettings
from policies.scaling.settings import ScalingSettings
from primitives.errors import UserError
from seep.cli.flags import Flags, RateProfile
from seep.cli.settings import settings_of
from seep.driver.options import RunOptions
from seep.logs.levels import LogFormat, LogLevel
from seep.logs.settings import LogSettings
from seep.metrics.settings import MetricsSettings, OtlpSettings
from seep.rows.rate import Profile, Rate
from vmpool.settings import PoolSettings, VMSettings


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


def test_a_policy_file_is_read_in_its_units(policy: Path) -> None:
    policy.write_text(
        "run:\n  epoch: 20ms\n  checkpoint: none\n  window: 8\n  buffer_budget: 64MiB\n  rate: 500\n"
        "  rate_profile: ramp\n  rate_period: 2min\n  tls: {certificate: c.pem, key: k.pem}\n"
    )
    settings = settings_of(Flags(policy=policy))
    assert settings.options == RunOptions(
        epoch=0.02, checkpoint=None, window=8, buffer_budget=64 << 20, tls=(Path("c.pem"), Path("k.pem"))
    )
    assert settings.rate == Rate(500, Profile.RAMP, 120.0)


def test_the_sections_of_a_policy_file_reach_the_run_as_they_are(policy: Path) -> None:
    policy.write_text("vm: {cpu: 0.2}\npool: {size: 3}\nscaling: {policy: true-rate, cooldown: 4s}")
    options = settings_of(Flags(policy=policy)).options
    assert options == RunOptions(
        vm=VMSettings(cpu=0.2), pool=PoolSettings(size=3), scaling=ScalingSettings(policy="true-rate", cooldown=4.0)
    )


def test_the_share_of_a_vm_can_be_said_by_a_flag(policy: Path) -> None:
    policy.write_text("vm: {cpu: 0.2, memory: 1GiB}")
    vm = settings_of(Flags(policy=policy, vm_cpu=0.5)).options.vm
    assert (vm.cpu, vm.memory) == (0.5, 1 << 30)


@pytest.mark.parametrize(
    ("content", "flag", "size"),
    [("pool: {size: 3}", None, 3), ("{pool: {size: 3}, run: {spare: 2}}", None, 2), ("pool: {size: 3}", 4, 4)],
)
def test_spare_goes_before_the_size_of_the_pool(policy: Path, content: str, flag: int | None, size: int) -> None:
    policy.write_text(content)
    assert settings_of(Flags(policy=policy, spare=flag)).options.whole_pool.size == size


def test_a_wrong_policy_file_is_refused_by_its_name(policy: Path) -> None:
    policy.write_text("run: {epock: 1s}")
    with pytest.raises(UserError, match=re.escape(f"policy {policy}: run.epock is unknown; known are epoch, ")):
        settings_of(Flags(policy=policy))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (Flags(epoch="soon"), "--epoch: 'soon' is no length of time"),
        (Flags(seconds="0"), "--seconds: '0' is no length of time to wait for"),
        (Flags(seconds="inf"), "--seconds: 'inf' is no length of time to wait for"),
        (Flags(rate="0"), "--rate: '0' is not a rate"),
        (Flags(rate="fast"), "--rate: 'fast' is not a rate"),
        (Flags(rate_profile=RateProfile.RAMP), "a rate profile (ramp) needs a rate"),
        (Flags(parallelism=["counter"]), "--parallelism 'counter': write an operator and its instances"),
        (Flags(parallelism=["counter=0"]), "--parallelism 'counter=0'"),
        (Flags(chaos="boom"), "chaos 'boom'"),
        (Flags(nodes=0), "option 'nodes' is 0"),
        (Flags(vm_cpu=0), "--vm-cpu: cpu is 0: Input should be greater than 0"),
        (Flags(otlp="collector:4318"), "--otlp: url is 'collector:4318': String should match pattern"),
        (Flags(metrics=70_000), "--metrics: port is 70000: Input should be less than or equal to 65535"),
        (Flags(report=Path("/no/such/place/r.json")), "there is no directory /no/such/place"),
    ],
)
def test_a_wrong_flag_is_refused_by_its_name(flags: Flags, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        settings_of(flags)


def test_the_profiles_of_the_command_line_are_those_of_the_sources() -> None:
    assert [str(profile) for profile in RateProfile] == [str(profile) for profile in Profile]


def test_flags_of_log_lines_go_before_the_file(policy: Path) -> None:
    policy.write_text("log: {level: warning, format: json}")
    assert settings_of(Flags(policy=policy)).options.log == LogSettings(level=LogLevel.WARNING, format=LogFormat.JSON)
    told = settings_of(Flags(policy=policy, log_level=LogLevel.DEBUG)).options.log
    assert told == LogSettings(level=LogLevel.DEBUG, format=LogFormat.JSON)
    assert not settings_of(Flags()).options.log.is_written


def test_a_port_for_metrics_goes_before_that_of_the_file_and_keeps_its_host(policy: Path) -> None:
    policy.write_text("metrics: {port: 9400, host: 0.0.0.0}")
    assert settings_of(Flags(policy=policy)).options.metrics == MetricsSettings(port=9400, host="0.0.0.0")
    assert settings_of(Flags(policy=policy, metrics=0)).options.metrics == MetricsSettings(port=0, host="0.0.0.0")
    assert settings_of(Flags(metrics=9401)).options.metrics == MetricsSettings(port=9401)


def test_balance_turns_on_what_the_file_describes(policy: Path) -> None:
    assert settings_of(Flags(balance=True)).options.balance == BalanceSettings(enabled=True)
    policy.write_text("balance: {balancer: autoflow, window: 1s}")
    described = BalanceSettings(balancer="autoflow", window=1.0)
    assert settings_of(Flags(policy=policy)).options.balance == described
    turned_on = settings_of(Flags(policy=policy, balance=True)).options.balance
    assert turned_on == described.model_copy(update={"enabled": True})


def test_a_collector_of_a_flag_goes_before_that_of_the_file_and_keeps_the_rest(policy: Path) -> None:
    policy.write_text("metrics: {port: 9400, otlp: {url: 'http://a:4318', interval: 2s}}")
    assert settings_of(Flags(policy=policy)).options.metrics.otlp == OtlpSettings(url="http://a:4318", interval=2.0)
    assert settings_of(Flags(policy=policy, otlp="http://b:1", metrics=0)).options.metrics == MetricsSettings(
        port=0, otlp=OtlpSettings(url="http://b:1", interval=2.0)
    )
