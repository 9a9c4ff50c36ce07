"""Settings of backups: what holds for an operator."""

from __future__ import annotations

from policies.backup import BackupSection, BackupSettings, BackupStrategy


def test_an_operator_that_is_named_has_its_own_settings_and_no_other_has() -> None:
    section = BackupSection.model_validate({"operators": {"counter": {"strategy": "replicas", "timeout": "500ms"}}})
    assert section.of("counter") == BackupSettings(strategy=BackupStrategy.REPLICAS, timeout=0.5)
    assert section.of("totals") == BackupSettings()


def test_the_default_holds_for_all_that_are_not_named() -> None:
    section = BackupSection.model_validate({"default": {"strategy": "storage"}})
    assert section.of("counter").strategy is BackupStrategy.STORAGE


def test_by_default_checkpoints_are_kept_upstream() -> None:
    assert BackupSection().of("counter").strategy is BackupStrategy.UPSTREAM
