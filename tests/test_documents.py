"""What the documents name is there: commands and their flags, settings, functions, modules, files and anchors."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache, reduce
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pydantic import BaseModel
from typer.main import get_command

from seep import sinks, testing
from seep.cli.app import app
from seep.config.policy import PolicyFile
from seep.config.schema import rows_of
from seep.driver.options import RunOptions
from seep.running.migration_handle import MigrationHandle
from seep.running.run import Run, launch
from seep.storage.settings import StorageSettings
from tests.documents import PAGES, ROOT, WITH_COMMANDS, anchors, blocks, commands, linked_anchors, name, spans, text
from vmpool.settings import PoolSettings

PACKAGES = ("primitives", "formats", "policies", "vmpool", "seep", "lrb", "nexmark", "benchmarks", "tests", "tools")
#: What stands for a name of the reader's own, or for something that was left out.
PLACEHOLDER = re.compile(r"…|\.\.\.|[A-Z][A-Z_:/.-]*")


# -- commands ----------------------------------------------------------------------------------------------------------


def problem_of(words: list[str]) -> str | None:
    """What is wrong with a command line of `seep`; nothing is run, and files need not be there."""
    command: Any = get_command(app)
    path = ["seep"]
    while hasattr(command, "commands") and words:
        word, *rest = words
        if PLACEHOLDER.fullmatch(word) or (word.startswith("-") and _takes(command, word)):
            words = rest
        elif "|" in word:  # one of several; all of them have to be there
            problems = [problem_of([*path[1:], each, *rest]) for each in word.split("|")]
            return next((problem for problem in problems if problem), None)
        elif word in command.commands:
            command, words, path = command.commands[word], rest, [*path, word]
        else:
            return f"{' '.join(path)} has no command {word}"
    wrong = [word for word in words if word.startswith("-") and not _takes(command, word)]
    return f"{' '.join(path)} has no option {wrong[0]}" if wrong else _refusal(command, words)


def _refusal(command: Any, words: list[str]) -> str | None:
    """What the command says of a line that is whole: one with options, of which nothing was left out."""
    if hasattr(command, "commands") or "…" in words or not any(word.startswith("-") for word in words):
        return None
    try:
        command.make_context(command.name, list(words))
    except Exception as reason:  # of typer's own copy of click
        return f"{command.name} {' '.join(words)}: {getattr(reason, 'message', reason)}"
    return None


def _takes(command: Any, word: str) -> bool:
    names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return word.partition("=")[0] in names | {"--help"}


@pytest.mark.parametrize("path", WITH_COMMANDS, ids=name)
def test_every_command_of_seep_in_a_document_is_there_with_its_options(path: Path) -> None:
    assert [problem for words in commands(path, "seep") if (problem := problem_of(words))] == []


def test_a_command_or_an_option_that_is_not_there_is_noticed() -> None:
    assert problem_of(["lrb", "demo"]) == "seep lrb has no command demo"
    assert problem_of(["pause"]) == "seep has no command pause"
    assert problem_of(["run", "a:b", "--sizes", "1,2,3"]) == "seep run has no option --sizes"
    assert problem_of(["deploy", "ec2|gcp", "up|destroy"]) == "seep deploy ec2 has no command destroy"
    assert problem_of(["savepoint", "orders", "--quiet"]) == "seep savepoint has no option --quiet"
    assert "Input should be a valid integer" in str(problem_of(["doctor", "--nodes", "x"]))
    assert problem_of(["run", "a:b", "--chaos", "kill:counter@5s", "-v"]) is None
    assert problem_of(["state", "show", "…", "--operator", "counter"]) is None


def test_the_documents_show_commands() -> None:
    assert len([words for path in WITH_COMMANDS for words in commands(path, "seep")]) > 100


@pytest.mark.parametrize("package", ["primitives", "formats", "policies", "vmpool", "seep", "lrb", "nexmark"])
def test_every_command_of_seep_that_a_message_or_docstring_names_is_there(package: str) -> None:
    sources = {path: text(path) for path in (ROOT / package).rglob("*.py")}
    named = [
        (name(path), line)
        for path, source in sources.items()
        for line in re.findall(r"`seep ([a-z][^`{\n]*)`|Example: seep ([^\"{\n]*)(?=\")", source)
    ]
    problems = [(where, problem_of(shlex.split(first or second))) for where, (first, second) in named]
    assert [each for each in problems if each[1]] == []


@pytest.mark.parametrize("path", WITH_COMMANDS, ids=name)
def test_every_script_that_a_document_runs_is_there_with_its_flags(path: Path) -> None:
    assert [problem for words in _python_commands(path) if (problem := _problem_of_script(words))] == []


def _python_commands(path: Path) -> list[list[str]]:
    return [words for python in ("python", ".venv/bin/python") for words in commands(path, python)]


def _problem_of_script(words: list[str]) -> str | None:
    """A flag of a script of ours must stand in its text, or in that of its package."""
    if words[0] == "-m":
        words = words[1:]
    script = ROOT / (words[0] if "/" in words[0] else words[0].replace(".", "/"))
    if script.parts[len(ROOT.parts)] not in (*PACKAGES, "examples"):
        return None  # somebody else's, or a name that stands for the reader's
    script = script if script.exists() else script.with_suffix(".py")
    if not script.exists():
        return f"there is no {words[0]}"
    near = script.glob("*.py") if script.is_dir() else [script, script.with_name("script.py")]
    said = "".join(text(each) for each in near if each.exists())
    flags = [word.partition("=")[0] for word in words if word.startswith("--")]
    return next((f"{words[0]} has no {flag}" for flag in flags if f'"{flag}"' not in said), None)


@cache
def all_flags() -> str:
    """Every flag of the command line, and the text of all scripts and other programs of ours that take some."""
    scripts = [*ROOT.glob("benchmarks/*.py"), *ROOT.glob("examples/*.py"), *ROOT.glob("seep/simulator/*.py")]
    return " ".join([*_flags_of(get_command(app)), *map(text, scripts)])


def _flags_of(command: Any) -> list[str]:
    below = getattr(command, "commands", {}).values()
    own = [f'"{name}"' for each in command.params for name in (*each.opts, *each.secondary_opts)]
    return own + [flag for each in below for flag in _flags_of(each)]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_flag_that_a_page_names_is_one_of_a_command_or_script(page: Path) -> None:
    named = [flag for span in spans(page) if span.startswith("-") for flag in re.findall(r"--[a-z][a-z-]*", span)]
    assert [flag for flag in named if f'"{flag}"' not in all_flags() and flag != "--help"] == []


#: Where the options of commands are told; those of every run are in a table of the first page.
PAGES_OF = {
    "": ["cli.md"],
    "config": ["configuration.md"],
    "deploy": ["deploy.md", "deploy-gcp.md"],
    "lrb": ["linear-road.md", "linear-road-data.md", "linear-road-query.md"],
    "nexmark": ["nexmark.md"],
    "report": ["cli.md"],
    "state": ["inspection.md"],
}


@pytest.mark.parametrize("group", PAGES_OF)
def test_every_option_of_a_command_is_on_its_page(group: str) -> None:
    pages = "".join(text(ROOT / "docs" / page) for page in PAGES_OF[group])
    commands = get_command(app).commands
    of_runs = {*_flags_of(commands["run"]), '"--quiet"', '"--verbose"'}
    found = [commands[group]] if group else [each for each in commands.values() if not hasattr(each, "commands")]
    told = {*re.findall(r"--(?:no-)?([a-z][a-z-]*)", pages)}  # of a pair, one is enough
    flags = {flag.strip('"') for each in found for flag in _flags_of(each) if flag not in of_runs}
    assert sorted(flag for flag in flags if flag.startswith("--") and re.sub("^--(no-)?", "", flag) not in told) == []


def test_the_options_of_every_run_on_the_page_are_those_that_it_takes() -> None:
    section = text(ROOT / "docs" / "cli.md").partition("\n## Options of every run")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `(--[a-z-]+)", section, re.MULTILINE)
    assert sorted(told) == sorted(
        flag.strip('"') for flag in _flags_of(get_command(app).commands["run"]) if '"--' in flag
    )


def test_the_options_of_nexmark_on_the_page_are_those_of_the_command_that_it_says() -> None:
    commands = {name: _flags_of(command) for name, command in get_command(app).commands["nexmark"].commands.items()}
    rows = [row.split("|")[1:3] for row in text(ROOT / "docs" / "nexmark.md").splitlines() if row.startswith("| `--")]
    said = [(flag, of.strip(" `")) for flags, of in rows for flag in re.findall(r"--[a-z-]+", flags)]
    assert len(said) > 15
    taken = {flag: {name for name in ("generate", "run") if f'"{flag}"' in commands[name]} for flag, _ in said}
    assert [flag for flag, of in said if taken[flag] != ({"generate", "run"} if of == "both" else {of})] == []


# -- settings ----------------------------------------------------------------------------------------------------------

SETTING = re.compile(rf"(?:{'|'.join(PolicyFile.model_fields)})(?:\.(?!py$|yaml$)(?:[a-z_0-9]+|…|<name>))+")


def is_setting(path: str) -> bool:
    """Whether a policy file has such a field; below `settings` is whatever the policy or provider takes."""
    return _has(PolicyFile, path.split("."))


def _has(of: Any, names: list[str]) -> bool:
    if not names or names[0] == "…":
        return True
    if isinstance(of, type) and issubclass(of, BaseModel):
        field = of.model_fields.get(names[0])
        return field is not None and (not names[1:] or _has(field.annotation, names[1:]))
    inner = get_args(of)
    if getattr(of, "__origin__", None) in (dict, *dict.__mro__) or "Mapping" in str(of):
        return _has(inner[-1], names[1:]) if names[1:] else True
    return of is Any or any(_has(each, names) for each in inner)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_setting_that_a_page_names_is_one_of_a_policy_file(page: Path) -> None:
    named = [span for span in spans(page) if SETTING.fullmatch(span)]
    assert [each for each in named if not is_setting(each) and not _is_of_a_run(each)] == []


def _is_of_a_run(span: str) -> bool:
    name = span.removeprefix("run.").partition(".")[0]
    return span.startswith("run.") and (hasattr(Run, name) or name in Run.__annotations__)


def test_a_setting_that_is_not_there_is_noticed() -> None:
    assert is_setting("backup.default.credits")
    assert is_setting("backup.….ready")
    assert is_setting("scaling.operators.counter.max")
    assert is_setting("storage.s3.endpoint_url")
    assert not is_setting("run.epock")
    assert not is_setting("scaling.detector.credits")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_policy_file_on_a_page_is_accepted(page: Path) -> None:
    found = [yaml.safe_load(block.text) for block in blocks(page) if block.language == "yaml"]
    for policy in found:
        if set(policy) <= set(PolicyFile.model_fields):
            PolicyFile.model_validate(policy)


def first_column(page: str, after: str, until: str = "\n## ") -> list[str]:
    """The names in the first column of the table below a heading."""
    section = text(ROOT / "docs" / page).partition(after)[2].partition(until)[0]
    cells = re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)]


def test_the_options_of_launch_on_the_page_are_those_that_it_takes() -> None:
    taken = {*signature(launch).parameters, *RunOptions.__slots__} - {"options"}
    assert sorted(first_column("run.md", "\n## launch")) == sorted(taken)


@pytest.mark.parametrize(("page", "settings"), [("pool.md", PoolSettings), ("storage.md", StorageSettings)])
def test_the_settings_on_a_page_are_those_of_the_section(page: str, settings: type[BaseModel]) -> None:
    fields = [row.path for row in rows_of(settings.model_json_schema())]
    assert sorted(first_column(page, "\n## Settings")) == sorted(fields)


def test_every_settings_file_of_the_project_is_on_the_page() -> None:
    page = text(ROOT / "docs" / "configuration.md")
    assert [file.name for file in ROOT.glob("config/*.yaml") if f"](../config/{file.name})" not in page] == []


# -- names in code -----------------------------------------------------------------------------------------------------


def is_there(path: str) -> bool:
    """Whether a dotted name leads to a module, or to something in one.

    >>> is_there("seep.sinks.parquet"), is_there("seep.sinks.excel")
    (True, False)
    """
    first, *names = path.split(".")
    found: Any = import_module(first)
    for at, each in enumerate(names, 2):
        try:
            found = getattr(found, each)
        except AttributeError:
            try:
                found = import_module(".".join([first, *names][:at]))
            except ImportError:
                return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_name_of_seep_that_a_page_uses_is_there(page: Path) -> None:
    code = [*spans(page), *(block.text for block in blocks(page) if block.language == "python")]
    named = {each for part in code for each in re.findall(r"(?<![\w./-])seep(?:\.[A-Za-z_]\w*)+(?![\w/])", part)}
    assert sorted(each for each in named if not is_there(each)) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_call_of_a_run_or_of_a_migration_that_a_page_shows_is_there(page: Path) -> None:
    code = [*spans(page), *(block.text for block in blocks(page) if "launch(" in block.text)]
    of_runs = {each for part in code for each in re.findall(r"(?<![\w.])run\.([a-z_]+)\(", part)}
    of_handles = {each for part in code for each in re.findall(r"(?<![\w.])handle\.([a-z_]+)\(", part)}
    assert sorted(each for each in of_runs if not hasattr(Run, each)) == []
    if page.name == "migration.md":
        assert sorted(each for each in of_handles if not hasattr(MigrationHandle, each)) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_import_on_a_page_finds_what_it_names(page: Path) -> None:
    programs = [block.text for block in blocks(page) if block.language == "python"]
    trees = [ast.parse(_without_prompts(program)) for program in programs]
    named = [
        f"{node.module}.{alias.name}"
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PACKAGES
        for alias in node.names
    ]
    assert [each for each in named if not is_there(each)] == []


def _without_prompts(program: str) -> str:
    """The program alone, if it is written as a session with its output."""
    if not program.startswith(">>>"):
        return program
    return "\n".join(line[4:] for line in program.splitlines() if line.startswith((">>> ", "... ", "...")))


def calls_in(program: str) -> list[tuple[str, list[str]]]:
    """The dotted name and the keywords of every call in a program; none if it is not one.

    >>> calls_in("seep.launch(query, nodes=4)")
    [('seep.launch', ['nodes'])]
    """
    try:
        tree = ast.parse(_without_prompts(program).replace("…", "None"))
    except SyntaxError:
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [(ast.unparse(call.func), [each.arg for each in call.keywords if each.arg]) for call in calls]


def takes(function: str, keyword: str) -> bool:
    """Whether a public function of seep, or a method of a run, takes a keyword; True for all that is neither."""
    if function == "seep.launch":
        return keyword in {*signature(launch).parameters, *RunOptions.__slots__}
    of, _, name = function.rpartition(".")
    if of == "run" and hasattr(Run, name):
        found: Any = getattr(Run, name)
    elif function.startswith("seep.") and is_there(function):
        found = reduce(getattr, function.split(".")[1:], import_module("seep"))
    else:
        return True
    parameters = signature(found).parameters
    return keyword in parameters or any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_keyword_of_a_call_on_a_page_is_one_that_the_function_takes(page: Path) -> None:
    programs = [*spans(page), *(block.text for block in blocks(page) if block.language == "python")]
    calls = [call for program in programs for call in calls_in(program)]
    assert [f"{name}({each}=)" for name, keywords in calls for each in keywords if not takes(name, each)] == []


def test_a_keyword_that_is_not_there_is_noticed() -> None:
    assert takes("seep.sinks.spark", "at_once")
    assert not takes("seep.sinks.spark", "once")
    assert takes("run.migrate", "batch")
    assert not takes("seep.launch", "nods")


def test_every_primitive_on_the_page_is_in_the_module_that_it_says() -> None:
    rows = [row.split("|")[1:3] for row in text(ROOT / "docs" / "primitives.md").splitlines() if ".py` |" in row]
    named = [(re.findall(r"`(\w+)`", names), re.findall(r"`(\w+)\.py`", modules)) for names, modules in rows]
    assert len([each for names, _ in named for each in names]) > 12
    missing = [
        each
        for names, modules in named
        for each in names
        if not any(is_there(f"{where}.{module}.{each}") for where in ("primitives", "formats") for module in modules)
    ]
    assert missing == []


#: Pages whose programs are whole; those of other pages are parts, or are run by tests of their subjects.
WHOLE = ("configuration.md", "pool.md", "state.md", "state-format.md")


@pytest.mark.parametrize("page", WHOLE)
def test_the_programs_of_a_page_run(page: str) -> None:
    programs = [block.text for block in blocks(ROOT / "docs" / page) if block.language == "python"]
    assert programs
    scope: dict[str, Any] = {"__name__": "page"}
    for program in programs:
        exec(compile(program, page, "exec"), scope)


def test_the_query_of_the_readme_runs(tmp_path: Path) -> None:
    [program] = [block.text for block in blocks(ROOT / "README.md") if block.language == "python"]
    write_trades(tmp_path / "trades")
    scope: dict[str, Any] = {}
    exec(compile(program.replace("/data/", f"{tmp_path}/").partition("\nwith ")[0], "README.md", "exec"), scope)
    testing.run(scope["query"], parallelism={"minutes": 4})
    found = sinks.read(tmp_path / "minutes").select(["symbol", "n", "high"])
    assert testing.rows(found) == testing.rows(pa.table({"symbol": ["A", "A", "B"], "n": [2, 1, 1], "high": [3, 9, 5]}))


def write_trades(folder: Path) -> None:
    """Four trades of more than a hundred, one of them half a minute later, and one small one."""
    trades = {"symbol": ["A", "A", "B", "B", "A"], "price": [2, 3, 5, 8, 9], "volume": [200, 300, 101, 100, 500]}
    at = pa.array([0, 1_000, 2_000, 3_000, 31_000], pa.timestamp("ms"))
    folder.mkdir()
    pq.write_table(pa.table({**trades, "at": at}), folder / "one.parquet")


# -- files and anchors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", WITH_COMMANDS, ids=name)
def test_every_file_of_the_project_that_a_document_names_is_there(path: Path) -> None:
    code = [word for span in _code(path) for word in re.split(r"[\s:\[\]()'\"]+", span)]
    named = {word.rstrip(".,;`") for word in code if word.split("/")[0] in (*PACKAGES, "config", "docs", "examples")}
    files = [word for word in named if re.fullmatch(r"[\w/-]+(/|\.\w+)", word)]
    assert sorted(word for word in files if not (ROOT / word).exists()) == []


def _code(path: Path) -> list[str]:
    return [*spans(path), *(block.text for block in blocks(path))] if path.suffix == ".md" else text(path).splitlines()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_module_that_a_page_lists_is_there(page: Path) -> None:
    here = {each.name for package in PACKAGES for each in (ROOT / package).rglob("*.py")}
    listed = [row.split("|")[1] for row in text(page).splitlines() if row.startswith("| `")]
    modules = [module for cell in listed for module in re.findall(r"`([a-z_0-9]+\.py)`", cell)]
    assert [module for module in modules if module not in here] == []


@pytest.mark.parametrize("page", [ROOT / "CHANGELOG.md", *ROOT.glob("docs/decisions/[0-9]*.md"), *PAGES], ids=name)
def test_every_link_to_a_heading_finds_it(page: Path) -> None:
    assert [f"{to.name}#{anchor}" for to, anchor in linked_anchors(page) if anchor not in anchors(to)] == []


def test_every_page_is_in_the_list_of_pages() -> None:
    listed = text(ROOT / "docs" / "README.md")
    pages = [page.name for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"]
    assert [page for page in pages if f"]({page})" not in listed] == []
