"""Start-up scripts are sound shell, whatever the settings say, and name no host to install from."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.errors import UserError
from seep.deploy.startup import master_script, pins, worker_script

LOCK = str(Path(__file__).parents[2] / "requirements.lock")


def bash(*arguments: str, text: str) -> str:
    done = subprocess.run(["bash", *arguments], input=text, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("script", [master_script(LOCK), worker_script(LOCK, "10.0.0.5", 4)], ids=["master", "worker"])
def test_scripts_are_sound_shell(script: str) -> None:
    assert script.startswith("#!/bin/bash\n")
    bash("-n", text=script)


@pytest.mark.parametrize("script", [master_script(LOCK), worker_script(LOCK, "10.0.0.5", 4)], ids=["master", "worker"])
def test_scripts_name_no_host_to_install_from(script: str) -> None:
    assert set(re.findall(r"\S+://\S+", script)) <= {"spark://10.0.0.5:7077"}


def test_a_worker_offers_as_many_cores_as_it_has_nodes_and_joins_the_master() -> None:
    assert worker_script(LOCK, "10.0.0.5", 4).rstrip().endswith("--cores 4 spark://10.0.0.5:7077")


@settings(max_examples=20)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=40))
def test_whatever_a_url_holds_the_shell_takes_it_as_one_word(rest: str) -> None:
    url = f"https://{rest}"
    head = master_script(url).partition("install_system_packages() {")[0]
    assert bash("-s", text=f'{head}\nprintf %s "$pins_url"') == url


def test_a_file_is_embedded_by_its_versions(tmp_path: Path) -> None:
    path = tmp_path / "my.lock"
    path.write_text("# by hand\nnumpy==2.4.6 \\\n    --hash=sha256:00\npyspark==4.3.0\n", encoding="utf-8")
    assert pins(str(path)) == "numpy==2.4.6\npyspark==4.3.0"
    head = master_script(str(path)).partition("install_system_packages() {")[0]
    assert bash("-s", text=f'{head}\nprintf %s "$pins"') == pins(str(path))


def test_a_file_that_pins_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "my.txt"
    path.write_text("numpy>=2\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"my\.txt pins nothing"):
        master_script(str(path))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match=r"environment: no\.lock cannot be read"):
        pins("no.lock")
