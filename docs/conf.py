"""The site: `make docs` builds it, without network; warnings are errors."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import typer

import marginalis
from marginalis.cli import answers, audit, expectations, formats, free_energy, make, report, results, samples, studies  # noqa: F401
from marginalis.cli.common import app

project = "marginalis"
author = "The marginalis developers"
copyright = f"2026, {author}"
version = release = marginalis.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
source_suffix = {".md": "myst-nb"}
nitpicky = False

# Pages say what runs in them: cells of a notebook are run here, plain blocks by tests/test_docs.py.
nb_execution_mode = "cache"
nb_execution_cache_path = str(Path(__file__).parent / "_build" / ".cells")
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_number_source_lines = False

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_custom_sections = [("Run options", "params_style")]
default_role = "code"

html_theme = "furo"
html_title = f"marginalis {version}"
html_static_path = ["_static"]
html_css_files = ["marginalis.css"]
html_theme_options = {
    "source_repository": "https://github.com/marginalis/marginalis/",
    "source_branch": "main",
    "source_directory": "docs/",
}
html_copy_source = False
html_show_sourcelink = False


REST = "<!-- names that have no place above -->"


def completed(text):
    """Return the page of the reference with an entry for every public name that has none yet."""
    rest = sorted(name for name in set(marginalis.__all__) if f":: marginalis.{name}\n" not in text)
    entries = ""
    for name in rest:
        kind = "class" if isinstance(getattr(marginalis, name), type) else "function"
        entries += f".. auto{kind}:: marginalis.{name}\n" + "   :members:\n" * (kind == "class")
    return text.replace(REST, f"## Others\n\n```{{eval-rst}}\n{entries}```\n" if rest else "")


COLON = "\ue000"  # Stands for a colon while a docstring is parsed.
COMMANDS = "<!-- all commands -->"


def with_commands(text):
    """Return the page of the command line with every command, its arguments and options, as the command has them."""
    root = typer.main.get_command(app)
    parts = [part for name in sorted(root.commands) for part in _command(f"marginalis {name}", root.commands[name])]
    return text.replace(COMMANDS, "\n".join(parts))


def _command(name, command):
    """Give the lines of markdown that describe a command, or all of a group."""
    if hasattr(command, "commands"):
        yield from (
            part for key in sorted(command.commands) for part in _command(f"{name} {key}", command.commands[key])
        )
        return
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    yield f"## {name}\n\n{command.help}\n\n```text\n{' '.join([name, *map(_metavar, arguments)])} [OPTIONS]\n```\n"
    yield "| option | what it does | default |\n|---|---|---|"
    for p in command.params:
        words = re.sub(r"(?<!\w)(--[a-z][a-z-]*)", r"`\1`", (getattr(p, "help", None) or "").replace("|", "\\|"))
        if p.param_type_name == "argument":
            yield f"| {_metavar(p)} | {words} | |"
        elif p.name != "help":
            default = "" if p.default in (None, False, ()) or callable(p.default) else f"`{p.default}`"
            yield f"| {', '.join(f'`{x}`' for x in [*p.opts, *p.secondary_opts])} | {words} | {default} |"
    yield ""


def _metavar(parameter):
    return parameter.metavar or parameter.name.upper()


# Formulas in docstrings: an energy, and a letter with an index.
ENERGY = re.compile(r"(?:−E·T|E(?:\(v, h\))?) = −?[^`.]*?(?:\)/T|(?=\. ))")
INDEXED = re.compile(
    r"(?<![\w`.])(?:ln )?[A-Za-zα-ωΛ]_(?:\{[^}]*\}|\d+|[a-z]{1,2})(?:\([a-z]_[a-z](?:, [a-z]_[a-z])?\))?(?![\w`])"
)
SYMBOLS = {"−": "-", "·": r"\cdot ", "×": r"\times ", "ᵀ": r"^\top ", "²": "^2", "½": r"\tfrac12 ", "±": r"\pm "}
WORDS = {"Σ": r"\sum", "Π": r"\prod", "cos": r"\cos", "ln": r"\ln"}


def tex(formula):
    """Return a formula of a docstring in LaTeX; Greek letters stay as they are."""

    def name(found):
        first, *rest = found[0].split("_")
        while len(first) > 2 and rest and len(rest[0]) > 2:  # A name of several words.
            first += rf"\_{rest.pop(0)}"
        head = WORDS.get(first) or (rf"\text{{{first}}}" + r"\," * (not rest) if len(first) > 2 else first)
        return head + "".join(rf"_{{\text{{{x}}}}}" if len(x) > 2 else f"_{{{x}}}" for x in rest) + " "

    found = re.sub(r"[A-Za-zα-ωΑ-Ω]+(?:_[A-Za-z0-9]+)*", name, formula)
    return "".join(SYMBOLS.get(x, x) for x in found).strip()


def typeset(lines):
    """Let formulas be mathematics, in the lines of a docstring that are not code."""
    text = "\n".join(lines)
    parts = re.split(r"(``.*?``|`[^`]*`|^ *(?:>>>|\.\.\.) [^\n]*$)", text, flags=re.MULTILINE | re.DOTALL)

    def math(found):
        return rf"\ :math:`{tex(found[0].replace(chr(10), ' '))}`\ "

    for k in range(0, len(parts), 2):
        pieces = re.split(f"({ENERGY.pattern})", parts[k])
        for j, piece in enumerate(pieces):
            pieces[j] = math(re.match("(?s)(.*)", piece)) if j % 2 else INDEXED.sub(math, piece)
        parts[k] = "".join(pieces)
    return "".join(parts).split("\n")


def setup(app):
    """Complete the reference, typeset formulas, and escape sizes, |V|, which would be taken for substitutions."""

    def complete(app, page, source):
        if page == "reference/api":
            source[0] = completed(source[0])
        if page == "reference/cli":
            source[0] = with_commands(source[0])

    def hide(app, what, name, thing, options, lines):  # What follows a colon would be taken for a type.
        if what in ("property", "attribute") and lines:
            lines[0] = lines[0].replace(": ", f"{COLON} ")

    def escape(app, what, name, thing, options, lines):
        lines[:] = [line.replace(COLON, ":").replace("|", r"\|") for line in typeset(lines)]

    app.connect("source-read", complete)
    app.connect("autodoc-process-docstring", hide, priority=400)
    app.connect("autodoc-process-docstring", escape, priority=600)
