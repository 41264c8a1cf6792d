"""What the package index gets: archives that hold what they should, facts that agree, workflows that can be read."""

import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
import yaml

import marginalis

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Homepage"]


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """The source archive and the wheel, built without network."""
    place = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", place], cwd=ROOT, check=True, capture_output=True)
    (wheel,), (source,) = place.glob("*.whl"), place.glob("*.tar.gz")
    return source, wheel


def test_the_archives_hold_what_they_should(archives):
    source, wheel = archives
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (facts,) = (name for name in names if name.endswith("METADATA"))
        metadata = HeaderParser().parsestr(archive.read(facts).decode())
    assert {name for name in names if name.endswith(".py")} == modules
    assert "marginalis/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {"marginalis", facts.split("/")[0]}
    assert metadata["Version"] == PROJECT["version"]
    assert {*metadata.get_all("Provides-Extra")} == {*PROJECT["optional-dependencies"]}
    assert metadata["Description-Content-Type"] == "text/markdown"
    with tarfile.open(source) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert {f"src/{name}" for name in modules} | {"pyproject.toml", "README.md", "LICENSE", "CITATION.cff"} <= names
    assert "tests/data/exact_log_z.json" in names  # the tests can be run from it
    assert not [name for name in names if name.startswith((".", "docs/_build")) and name != ".gitignore"]
    assert max(archive.stat().st_size for archive in archives) < 2**20


def test_facts_agree():
    assert PROJECT["version"] == marginalis.__version__
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == PROJECT["version"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {PROJECT['version']}" in changes


def test_the_readme_stands_alone():
    """The package index shows it without the files beside it: links are absolute, and those into here lead on."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    assert len(targets) > 10
    raw = REPOSITORY.replace("github.com", "raw.githubusercontent.com")
    for target in targets:
        assert target.startswith(("https://", "#")), target
        for prefix in (f"{REPOSITORY}/blob/main/", f"{REPOSITORY}/tree/main/", f"{raw}/main/"):
            if target.startswith(prefix):
                assert (ROOT / target.removeprefix(prefix).split("#")[0]).exists(), target


def test_workflows_can_be_read():
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert [file.stem for file in files] == ["docs", "publish", "tests"]
    supported = [line.rsplit(" ", 1)[1] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for file in files:
        flow = yaml.safe_load(file.read_text(encoding="utf-8"))
        for job in flow["jobs"].values():
            for step in job["steps"]:
                assert ("run" in step) != ("uses" in step)
                assert not re.search(r"\$\{\{", step.get("run", "")), "an expression in a script can be injected"
                for target in re.findall(r"make ([a-z-]+)", step.get("run", "")):
                    if "marginalis make" not in step["run"]:
                        assert target in targets
        if file.stem == "tests":
            assert flow["jobs"]["tests"]["strategy"]["matrix"]["python"] == supported


@pytest.mark.study
@pytest.mark.parametrize("kind", [0, 1], ids=["source", "wheel"])
def test_an_installed_archive_works(archives, tmp_path, kind):
    """In an environment of its own, with its dependencies from the index."""
    venv.create(tmp_path / "venv", with_pip=True)
    scripts = tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    run = {"cwd": tmp_path, "check": True, "capture_output": True, "text": True}
    subprocess.run([scripts / "python", "-m", "pip", "install", "--quiet", archives[kind]], **run)
    subprocess.run([scripts / "marginalis", "make", "rbm-gaussian", "-o", "rbm.npz"], **run)
    done = subprocess.run([scripts / "marginalis", "estimate", "rbm.npz", "--plot", "weights.png"], **run)
    assert done.stdout.startswith("F = ")
    assert (tmp_path / "weights.png").stat().st_size > 1000
