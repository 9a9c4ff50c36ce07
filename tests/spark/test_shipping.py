"""Shipping and the first steps of a node: the same packages as the driver's, wherever it finds itself."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyspark
import pytest

from seep.spark.bootstrap import Shipment, check_required, digest_of, files_of, node_task, root_of, unpack
from seep.spark.shipping import PACKAGES, packed, travel_by_value, write_archive

#: Runs a pickled task as Spark's worker would, in a Python that has pyspark and nothing of this project.
WORKER = """
import sys
sys.path.append(sys.argv[1])
from pyspark import SparkFiles, cloudpickle
SparkFiles._root_directory, SparkFiles._is_running_on_worker = sys.argv[2], True
try:
    import seep
except ImportError:
    pass
else:
    sys.exit("this Python has the project already")
task = cloudpickle.loads(open(sys.argv[3], "rb").read())
task([None])
"""


def package(root: Path, **files: str) -> str:
    """A directory of files."""
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / f"{name}.py").write_text(text)
    return str(root)


def test_the_digest_tells_any_change_of_name_or_content(tmp_path: Path) -> None:
    base = digest_of([("p", package(tmp_path / "a", one="1", two="2"))])
    assert digest_of([("p", package(tmp_path / "b", one="1", two="2"))]) == base
    assert digest_of([("p", package(tmp_path / "c", one="1", two="3"))]) != base
    assert digest_of([("p", package(tmp_path / "d", one="1", too="2"))]) != base
    assert digest_of([("p", package(tmp_path / "e", one="12", two=""))]) != base


def test_caches_are_no_part_of_a_package(tmp_path: Path) -> None:
    root = package(tmp_path / "p", one="1")
    package(tmp_path / "p" / "__pycache__", compiled="x")
    assert files_of(root) == ["one.py"]


def test_the_same_packages_make_the_same_archive(tmp_path: Path) -> None:
    roots = [("p", package(tmp_path / "p", one="1", two="2"))]
    write_archive(tmp_path / "a.zip", roots)
    os.utime(tmp_path / "p" / "one.py", (0, 0))
    write_archive(tmp_path / "b.zip", roots)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_many_workers_may_unpack_at_once_and_all_find_the_whole(tmp_path: Path) -> None:
    archive = tmp_path / "p.zip"
    with zipfile.ZipFile(archive, "w") as packing:
        for number in range(200):
            packing.writestr(f"p/m{number}.py", str(number))

    script = "import sys; from seep.spark.bootstrap import unpack; unpack(*sys.argv[1:])"
    command = [sys.executable, "-c", script, str(archive), str(tmp_path), "d"]
    with ThreadPoolExecutor() as pool:
        ends = list(pool.map(lambda _: subprocess.run(command, check=False).returncode, range(4)))

    assert ends == [0] * 4
    assert len(list(Path(unpack(str(archive), str(tmp_path), "d"), "p").iterdir())) == 200
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.zip", "seep-packages-d"]


def test_what_a_host_lacks_is_named_with_the_host() -> None:
    with pytest.raises(ImportError, match=r"host .* lacks the Python packages no_such_one, nor_this: install them"):
        check_required(["numpy", "no_such_one", "nor_this"])


def test_a_python_without_the_project_runs_it_from_the_archive(tmp_path: Path) -> None:
    roots = [(name, root) for name in PACKAGES if (root := root_of(name))]
    write_archive(tmp_path / "seep.zip", roots)
    shipment = Shipment(tuple(name for name, _ in roots), digest_of(roots), "seep.zip", (), ("numpy",))

    def write_where_seep_is(path: str) -> None:
        from pathlib import Path

        import primitives.slots
        import seep

        Path(path).write_text(f"{seep.__file__}\n{primitives.slots.__file__}")

    travel_by_value()
    task = tmp_path / "task"
    task.write_bytes(packed(node_task(shipment, packed(write_where_seep_is), str(tmp_path / "found"))))
    site = str(Path(pyspark.__file__).parents[1])
    arguments = [site, str(tmp_path), str(task)]
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", WORKER, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    unpacked = tmp_path / f"seep-packages-{shipment.digest}"
    assert (tmp_path / "found").read_text().split() == [
        str(unpacked / "seep" / "__init__.py"),
        str(unpacked / "primitives" / "slots.py"),
    ]


def test_functions_of_a_module_that_is_installed_nowhere_travel_whole(tmp_path: Path) -> None:
    package(tmp_path, homemade="def double(n):\n    return 2 * n\n")
    packing = (
        "import sys, homemade; from seep.spark.shipping import loose_modules, packed; "
        "sys.stdout.buffer.write(packed(homemade.double, loose_modules()))"
    )
    code = subprocess.run(
        [sys.executable, "-c", packing], env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, check=True
    ).stdout
    unpacking = "import sys; from pyspark import cloudpickle; print(cloudpickle.loads(sys.stdin.buffer.read())(21))"
    answer = subprocess.run([sys.executable, "-c", unpacking], input=code, capture_output=True, check=True).stdout
    assert answer == b"42\n"
