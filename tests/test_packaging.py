"""What the package index gets: archives that hold what they should, facts that agree, workflows that can be read."""

import json
import os
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
    check_links(metadata.get_payload(), links_of(README), REPOSITORY.replace("github.com", "raw.githubusercontent.com"))
    with tarfile.open(source) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert {f"src/{name}" for name in modules} | {"pyproject.toml", "README.md", "LICENSE", "CITATION.cff"} <= names
    assert "tests/data/exact_log_z.json" in names  # the tests can be run from it
    assert not [name for name in names if name.startswith((".", "docs/_build")) and name != ".gitignore"]
    assert (
        max(archive.stat().st_size for archive in archives) < 2**21
    )  # A large file that was added by mistake would show.


def test_version_and_metadata_agree_in_all_files():
    assert PROJECT["version"] == marginalis.__version__
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == PROJECT["version"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {PROJECT['version']}" in changes


README = (ROOT / "README.md").read_text(encoding="utf-8")


def links_of(text):
    return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)


def check_links(text, own, raw):
    """The package index shows the text without the files beside it: there all links are absolute."""
    for target, there in zip(own, links_of(text), strict=True):
        if target.startswith("https://"):
            assert there == target
        else:
            assert (
                there == f"{raw}/main/{target}"
                if target.endswith((".png", ".svg"))
                else f"{REPOSITORY}/blob/main/{target}"
            )


def test_the_links_of_the_readme_lead_somewhere():
    targets = links_of(README)
    assert len(targets) > 10
    for target in targets:
        assert target.startswith("https://") or (ROOT / target.split("#")[0]).exists(), target


def test_nothing_claims_to_be_on_an_index():
    """Until a release is there `pip install marginalis` fails; with an extra it adds to what is installed."""
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        assert not re.search(r"(pip install|pipx run|uvx) '?marginalis(?![\[/\w])", path.read_text(encoding="utf-8")), (
            path
        )


def test_the_container_is_built_from_what_is_here(tmp_path):
    """No Docker here: its instructions are known ones, in order, and what it copies, installs and runs exists."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    words = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    assert [word for word, _ in words] == ["FROM", "COPY", "RUN", "ENV", "RUN", "WORKDIR", "ENTRYPOINT", "CMD"]
    given = dict(words)
    python = re.fullmatch(r"python:(3\.\d+)-slim", given["FROM"])[1]
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]
    (extra,) = re.findall(r'"/src\[(\w+)\]"', words[2][1])
    assert extra in PROJECT["optional-dependencies"]
    (command,) = json.loads(given["ENTRYPOINT"])
    assert command in PROJECT["scripts"]
    run = [sys.executable, "-m", "marginalis", *json.loads(given["CMD"])]
    name, place = given["ENV"].split("=")
    assert place in words[4][1]
    done = subprocess.run(run, env={**os.environ, name: str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True)
    assert "free-energy" in done.stdout


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
