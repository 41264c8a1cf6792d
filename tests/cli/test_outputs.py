"""Files that commands write: whole, or as they were; refused before the work where they cannot be."""

import os

import pytest
from conftest import command as run
from conftest import posix

from marginalis.files import atomic

WRITERS = {
    "estimate": ["estimate", "{model}", "--out"],
    "plot": ["bound", "{model}", "--plot"],
    "thermodynamics": ["thermodynamics", "{model}", "--betas", "1", "--plot"],
    "likelihood": ["likelihood", "{model}", "{model}", "--out"],
    "make": ["make", "dbm", "-o"],
    "reproduce": ["reproduce", "table1", "--out"],
    "calibrate": ["calibrate", "--out"],
}


@posix
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("place", ["loop.png", "pipe", "file/deeper", "x" * 300, "y/" * 2500])
def test_no_work_for_an_output_that_cannot_be_written(model, tmp_path, writer, place):
    (tmp_path / "loop.png").symlink_to("loop.png")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    done = run(*(a.format(model=model) for a in WRITERS[writer]), place, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("marginalis: cannot write")
    assert done.stderr.count("\n") == 1
    assert len(done.stderr) < 300
    assert sorted(os.listdir(tmp_path)) == ["file", "loop.png", "pipe"]


@pytest.mark.parametrize("writer", ["estimate", "plot", "make", "reproduce"])
def test_a_disk_that_fills_up_is_one_line(model, tmp_path, monkeypatch, writer):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    few = {"reproduce": ("--experiments", 1, "--chains", 2), "make": ()}.get(writer, ("--steps", 2))
    words = [a.format(model=model) for a in WRITERS[writer]]
    done = run(*words, tmp_path / "out.png", *few)
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert done.stderr.count("marginalis: ") == 1


@posix
@pytest.mark.parametrize("device", ["/dev/null", "/dev/full", "/dev/zero"])
def test_devices_are_no_outputs(device):
    """Only asked, never written to: if this broke, root would replace the device by a file."""
    with pytest.raises(ValueError, match="it is not a regular file"):
        atomic.check_writable(device)


@posix
def test_a_file_is_whole_or_as_it_was(tmp_path):
    """Whatever ends the writing, nothing half-written stays, and links are followed."""
    path, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(path)
    atomic.write_whole(link, lambda file: file.write(b"first"))
    with open(path, "rb") as reader:
        atomic.write_whole(link, lambda file: file.write(b"good"))
        assert reader.read() == b"first"  # whoever reads it has a whole file, too
    for error in (OSError(28, "No space left on device"), KeyboardInterrupt(), SystemExit(143)):

        def fail(file, error=error):
            file.write(b"half")
            raise error

        with pytest.raises(type(error)):
            atomic.write_whole(link, fail)
        assert path.read_bytes() == b"good"
        assert sorted(os.listdir(tmp_path)) == ["file", "link"]
