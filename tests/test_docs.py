"""Every code block of README and docs runs as pasted, in order, and prints what the page says it prints.

``python`` blocks of a page, the cells of a notebook page included, share one namespace, and all blocks one empty
folder. Comment lines right below what prints are its output, from the first line to the last; so is a comment beside
a ``print`` that begins as a number or a tuple does. ``…`` stands for anything, and seconds are not compared. All other
characters must be those that are printed: on processors with AVX-512, where the pages were written, to the last digit;
on others, which round otherwise and may flip a draw, numbers may differ a little in their last digits.
``bash`` blocks are run as they are. ``sh`` blocks install things or take minutes: their names are looked up only.
``py`` blocks need packages that the tests do not install, and are not run.
"""

import ast
import contextlib
import inspect
import io
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

import marginalis as mg
from marginalis.cli.common import app
from marginalis.options import DEFAULTS

ROOT = Path(__file__).parents[1]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "_build" not in path.parts
}
QUICK = {  # run by `make test`; the others by `make docs`
    "README.md",
    "docs/formats.md",
    "docs/install.md",
    "docs/models/classic.md",
    "docs/models/conditions.md",
    "docs/models/dbm.md",
    "docs/models/factors.md",
    "docs/models/gaussian.md",
    "docs/models/rectified.md",
    "docs/models/graphs.md",
    "docs/models/potts.md",
}
NEEDS = {"docs/tutorials/audit.md": ("dwave.samplers", "dwave.graphs")}  # packages of the extra [docs]
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = re.compile(r"\d+(\.\d+)? s\b")
NUMBER = re.compile(r"(\d+(?:\.\d+)?)")
CPU = Path("/proc/cpuinfo")
TO_THE_LAST_DIGIT = CPU.exists() and "avx512f" in CPU.read_text(encoding="utf-8", errors="replace")


def blocks(text):
    """Give kind, first line and content of every block of code of a page."""
    for found in BLOCK.finditer(text):
        kind = re.sub(r"\{code-cell\}.*", "python", found[1]).strip()
        yield kind, text.count("\n", 0, found.start()) + 2, re.sub(r"\A(:.*\n)+", "", found[2])


def comments_below(lines, number):
    """Return the text of the comment lines that follow line `number`, without a gap."""
    found = []
    while number < len(lines) and (match := re.fullmatch(r"# ?(.*)", lines[number])):
        found.append(match[1])
        number += 1
    return found


def agrees(printed, said):
    """Whether what is printed is what the page says: letter by letter, and number by number as `same` has it."""
    parts = NUMBER.split(SECONDS.sub("0 s", said))
    words = [".*?".join(re.escape(x) for x in part.split("…")) for part in parts[::2]]
    found = re.fullmatch(NUMBER.pattern.join(words), SECONDS.sub("0 s", printed), re.DOTALL)
    if found is None:
        return False
    return all(
        same(x, y) or (after.startswith("…") and x.startswith(y))
        for x, y, after in zip(found.groups(), parts[1::2], parts[2::2], strict=True)
    )


def compare(printed, said, place):
    """Raise if what is printed is not what the page says below it."""
    assert agrees(printed, said), f"{place} prints\n{printed}\nand the page says\n{said}"


def compare_beside(printed, said, place):
    """Raise if what is printed is not how the comment on the same line begins, up to a remark."""
    beginnings = [said, *(said[: end.start()] for end in re.finditer(r"[:;,]? ", said))]
    assert any(agrees(printed, x) for x in beginnings), f"{place} prints {printed}, and the page says {said}"


def same(x, y):
    """Whether a printed number is that of the page: the same digits, or nearly so on processors of another kind."""
    return x == y or (not TO_THE_LAST_DIGIT and near(x, y))


def near(x, y):
    """Whether two numbers differ by at most 20 in the last digit, or 5 % if there are fewer than two decimals."""
    digits = len(y.partition(".")[2])
    return abs(float(x) - float(y)) <= (20 * 10.0**-digits if digits > 1 else 0.05 * abs(float(y)))


def run_python(source, names, place):
    lines = source.splitlines()
    for node in ast.parse(source).body:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(ast.Module([node], []), place, "exec"), names)
        printed = [line.rstrip() for line in out.getvalue().rstrip("\n").split("\n")]
        below, beside = comments_below(lines, node.end_lineno), lines[node.end_lineno - 1].partition("  # ")[2]
        if out.getvalue() and below:
            compare("\n".join(printed), "\n".join(x.rstrip() for x in below), f"{place}:{node.lineno}")
        elif out.getvalue() and re.match(r"[-+]?[\d(\[]", beside):
            compare_beside("\n".join(printed), beside.rstrip(), f"{place}:{node.lineno}")


def run_bash(source, place):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    lines = source.splitlines()
    number = 0
    while number < len(lines):
        command = lines[number]
        while command.endswith("\\"):
            number += 1
            command += "\n" + lines[number]
        number += 1
        if command.strip() and not command.startswith("#"):
            done = subprocess.run(
                ["bash", "-c", command], capture_output=True, encoding="utf-8", env={**os.environ, "PATH": path}
            )
            assert done.returncode == 0, f"{place}: {command}\n{done.stderr}"
            if said := comments_below(lines, number):
                compare(done.stdout.rstrip("\n"), "\n".join(said), f"{place}: {command}")


def test_printed_numbers_are_compared(monkeypatch):
    for exactly in (True, False):
        monkeypatch.setitem(globals(), "TO_THE_LAST_DIGIT", exactly)
        assert agrees("F = -66.9251 ± 0.0071, 3.14159, 1.2 s", "F = -66.9251 ± 0.0071, 3.14…, 0.5 s")
        assert agrees("F = -66.9251 ± 0.0071", "F = -66.9256 ± 0.0071") != exactly
        assert not agrees("F = -66.9251", "F = -66.9751")
        assert not agrees("ln Z = 66.9251", "F = 66.9251")
        assert not agrees("3.55", "3.14…")
    compare_beside("(0, 1)", "(0, 1): the variables that are left", "here")
    with pytest.raises(AssertionError, match="here prints 12"):
        compare_beside("12", "13 or so", "here")


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[] if page in QUICK else pytest.mark.docs) for page in PAGES]
)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    for package in NEEDS.get(page, ()):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"), prepend=os.pathsep)
    names = {"__name__": "__main__"}
    for kind, line, source in blocks(PAGES[page]):
        place = f"{page}:{line}"
        if kind == "python":
            run_python(source, names, place)
        elif kind == "bash":
            run_bash(source, place)


@pytest.mark.docs
def test_every_code_block_of_the_docs_is_run_or_its_commands_exist():
    """Python and commands say so, and what is only looked up exists."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for page, text in PAGES.items():
        for kind, line, source in blocks(text):
            place = f"{page}:{line}"
            if kind in ("", "text"):
                assert not re.search(r"^(marginalis|make|python|pip|import|>>>|\$) ", source, re.MULTILINE), place
            elif kind == "sh":
                for target in re.findall(r"^make ([a-z-]+)", source, re.MULTILINE):
                    assert target in targets, place
                for script in re.findall(r"^python (\S+\.py)", source, re.MULTILINE):
                    assert (ROOT / script).exists(), place
                for extra in re.findall(r"marginalis\[(\w+)\]", source):
                    assert extra in extras, place
            else:
                assert kind in ("python", "bash", "py", "r", "toml", "bibtex", "{eval-rst}") or kind.startswith("{"), (
                    place
                )


def test_the_reference_has_every_command():
    """With all its options, made from the commands themselves."""
    conf = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    text = conf["with_commands"](PAGES["docs/reference/cli.md"])
    commands = typer.main.get_command(app).commands
    for name, command in commands.items():
        assert f"## marginalis {name}" in text
        for parameter in getattr(command, "params", []):
            assert all(f"`{flag}`" in text for flag in parameter.opts if flag.startswith("--") and flag != "--help")
    assert "## marginalis make ising-grid" in text


def test_the_reference_names_everything():
    """Every public name has its entry, and no entry is without a name."""
    conf = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    text = conf["completed"](PAGES["docs/reference/api.md"])
    named = re.findall(r"^\.\. auto(?:function|class|exception|module):: marginalis\.(\w+)$", text, re.MULTILINE)
    assert sorted(named) == sorted({*mg.__all__, "examples"})


def documented(function):
    """Return the names in the section Parameters of a function's docstring."""
    text = inspect.getdoc(function) or ""
    found = re.search(r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^\w.*$", found[1], re.MULTILINE) if found else []
    return [name for line in lines for name in line.split(", ")]


@pytest.mark.parametrize("name", [name for name in mg.__all__ if inspect.isfunction(getattr(mg, name))])
def test_every_parameter_of_a_public_function_is_documented(name):
    """Options of a run have a section of their own, which `takes_options` writes."""
    function = getattr(mg, name)
    parameters = inspect.signature(function).parameters
    shared = [x for x in parameters if x in DEFAULTS and f"\n{x}\n" in function.__doc__.partition("Run options")[2]]
    own = [x for x in parameters if x not in shared]
    assert [x for x in documented(function) if x != "options"] == own
