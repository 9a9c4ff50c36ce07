"""Reading settings files: what they come to, and what is refused in them, by file and path."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.yaml_text import parsed
from policies.scaling.settings import Bounds, Mechanism, ScalingSettings
from primitives.errors import UserError
from seep.config.files import in_full, read_policy, read_settings
from seep.config.kinds import ConfigKind
from seep.config.policy import Certificate, PolicyFile, RunSection
from seep.rows.rate import Profile
from vmpool.settings import PoolSettings, Sizing, VMSettings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "policy.yaml"


@pytest.mark.parametrize("content", ["", "# nothing yet\n", "{}", "run: {}"])
def test_an_empty_file_is_all_defaults(file: Path, content: str) -> None:
    file.write_text(content)
    assert read_policy(file) == PolicyFile()


def test_every_section_is_read(file: Path) -> None:
    file.write_text(
        "run: {epoch: 20ms, rate: 20k, tls: {certificate: c.pem, key: k.pem}}\n"
        "vm: {cpu: 0.2, memory: 1GiB}\n"
        "pool: {size: 3, sizing: adaptive}\n"
        "scaling: {policy: cpu-threshold, operators: {counter: {max: 4, mechanism: backup}}}\n"
    )
    assert read_policy(file) == PolicyFile(
        run=RunSection(epoch=0.02, rate=20_000, tls=Certificate(certificate=Path("c.pem"), key=Path("k.pem"))),
        vm=VMSettings(cpu=0.2, memory=1 << 30),  # type: ignore[arg-type]
        pool=PoolSettings(size=3, sizing=Sizing.ADAPTIVE),
        scaling=ScalingSettings(
            policy="cpu-threshold", operators={"counter": Bounds(max=4, mechanism=Mechanism.BACKUP)}
        ),
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("run: {epock: 1s}", "run.epock is unknown; known are epoch, checkpoint"),
        (
            "scale: 1",
            "scale is unknown; known are run, vm, pool, storage, backup, migration, balance, scaling",
        ),
        ("pool: {siz: 1}", "pool.siz is unknown; known are provider, settings, size"),
        (
            "scaling: {operators: {a: {mx: 1}}}",
            "scaling.operators.a.mx is unknown; known are scale, min, max, mechanism",
        ),
        (
            "run: {tls: {cert: c.pem}}",
            "run.tls.certificate is missing; run.tls.key is missing; run.tls.cert is unknown",
        ),
        ("run: {tls: maybe}", "run.tls is 'maybe': write true, false, or a mapping with certificate and key"),
        ("run: {epoch: fast}", "run.epoch is 'fast': 'fast' is no length of time"),
        ("run: {parallelism: {counter: 0}}", "run.parallelism.counter is 0: Input should be greater than 0"),
        ("run: {nodes: many}", "run.nodes is 'many': Input should be a valid integer"),
        ("run: {rate: fast}", "run.rate is 'fast': 'fast' is not a rate; write rows per second"),
        ("run: {rate: 0}", "run.rate is 0: Input should be greater than 0"),
        ("run: {rate_profile: wild}", "run.rate_profile is 'wild': Input should be 'steady', 'ramp'"),
        ("vm: {memory: big}", "vm.memory is 'big': could not parse value and unit from byte string"),
        ("scaling: {scale_in: {below: 0.9}}", "scaling: scale_in.below is 0.9, not below detector.cpu (0.7)"),
        ("- run", "the whole is ['run'], and not a mapping"),
        ("just words", "the whole is 'just words', and not a mapping"),
        ("run: [1]", "run is [1], and not a mapping"),
        ("run: [", "is not YAML: line 1"),
        ("run: {epoch: 1s}\nvm: {}\nrun: {epoch: 2s}", "line 3: 'run' stands twice, first in line 1"),
    ],
)
def test_what_is_wrong_is_refused_with_file_and_path(file: Path, content: str, message: str) -> None:
    file.write_text(content)
    with pytest.raises(UserError, match=re.escape(message)) as refused:
        read_policy(file)
    assert str(file) in str(refused.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.yaml cannot be read: No such file"):
        read_policy(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_policy(tmp_path)


def test_a_file_of_config_that_is_not_here_is_the_one_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_policy(Path("config/balance.yaml")).balance is not None
    with pytest.raises(UserError, match=r"config/none\.yaml cannot be read: No such file"):
        read_policy(Path("config/none.yaml"))
    with pytest.raises(UserError, match=r"balance\.yaml cannot be read: No such file"):
        read_policy(Path("balance.yaml"))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "balance.yaml").write_text("run: {epoch: 70ms}")
    assert read_policy(Path("config/balance.yaml")).run.epoch is not None, "a file that is here goes first"


def test_a_file_that_is_no_text_is_refused(file: Path) -> None:
    file.write_bytes(b"run: \xff")
    with pytest.raises(UserError, match="is not text in UTF-8: invalid start byte at byte 5"):
        read_policy(file)


@pytest.mark.parametrize(("kind", "what"), [(ConfigKind.EC2, "EC2"), (ConfigKind.GCP, "Google Cloud")])
def test_a_cluster_file_is_no_policy(file: Path, kind: ConfigKind, what: str) -> None:
    file.write_text(f"{kind}: {{}}")
    with pytest.raises(UserError, match=f"is an? {what} cluster file, no policy file; it is for `seep deploy {kind}`"):
        read_policy(file)


@given(
    st.builds(
        PolicyFile,
        run=st.builds(
            RunSection,
            epoch=st.floats(1e-3, 10),
            checkpoint=st.none() | st.floats(0.1, 100),
            spare=st.none() | st.integers(0, 9),
            tls=st.booleans() | st.just(Certificate(certificate=Path("c.pem"), key=Path("k.pem"))),
            parallelism=st.dictionaries(st.sampled_from(["a", "on", "1", "null"]), st.integers(1, 9)),
            rate_profile=st.sampled_from(Profile),
        ),
        vm=st.builds(VMSettings, cpu=st.none() | st.floats(0.01, 64)),
        scaling=st.builds(ScalingSettings, operators=st.dictionaries(st.text(max_size=3), st.just(Bounds(max=2)))),
    )
)
def test_a_file_shown_in_full_says_the_same(policy: PolicyFile) -> None:
    assert PolicyFile.model_validate(parsed(in_full(policy), "shown.yaml")) == policy


def test_what_is_shown_of_an_empty_file_has_every_section(file: Path) -> None:
    file.write_text("")
    kind, settings = read_settings(file)
    sections = ["run", "vm", "pool", "storage", "backup", "migration", "balance", "scaling", "log", "metrics"]
    sections += ["dashboard"]
    assert (kind, list(parsed(in_full(settings), "shown.yaml"))) == (ConfigKind.POLICY, sections)
