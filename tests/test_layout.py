"""The layers of the package: imports go down only, in a ring nowhere, and nothing hides behind a name."""

import ast
from pathlib import Path

import networkx as nx
import pytest

import marginalis as mg

ROOT = Path(mg.__file__).parent
# Each may import what stands before it. The root has the version; it finds the public names when one is used.
LAYERS = (
    ("marginalis",),
    ("checks", "display", "random", "parallel", "simd", "gpu"),
    ("statistics",),
    ("models",),
    ("files",),
    ("exact",),
    ("paths",),
    ("options",),
    ("engines",),
    ("running",),
    ("results",),
    ("planning",),
    ("answers",),
    ("plots",),
    ("examples", "studies", "reporting", "watching"),
    ("_public",),
    ("cli",),
    ("__main__",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
LONGEST = 470  # lines: one concept a file, about 400; more only if cutting it would cut a concept


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("marginalis", *(parts[:-1] if parts[-1] == "__init__" else parts)))


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def layer(module):
    return module.split(".")[1] if "." in module else module


def is_typing_only(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def import_nodes(tree, typing):
    """All imports of a module, those inside functions as well; with `typing` also those for type checkers only."""
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        todo += [x for x in ast.iter_child_nodes(node) if typing or not is_typing_only(x)]


def imported(module, typing=False):
    """The modules of the package that a module imports: of ``from package import name`` the module `name`, if it is."""
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in import_nodes(ast.parse(path.read_text()), typing):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in MODULES)
            continue
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        source = ".".join([*above, *([node.module] if node.module else [])])
        if source in MODULES:
            for name in node.names:
                inner = f"{source}.{name.name}"
                yield inner if inner in MODULES else source


def edges(typing=False):
    found = {(module, other) for module in MODULES for other in imported(module, typing) if other != module}
    return found - {("marginalis", "marginalis._public")}


def test_the_graph_is_seen():
    """Relative, absolute, of names, of modules, inside functions: otherwise the tests below would see nothing."""
    found = edges()
    assert ("marginalis.engines.reference.loop", "marginalis.engines.reference.moves") in found
    assert ("marginalis.engines.drive", "marginalis.engines.cpu") in found  # inside a function
    assert ("marginalis._public", "marginalis.plots") in found
    assert ("marginalis.engines.reference.moves", "marginalis.engines.reference.loop") in edges(typing=True) - found
    assert len(found) > 2 * len(MODULES)


def test_no_imports_in_a_ring():
    rings = nx.strongly_connected_components(nx.DiGraph(edges()))
    assert [sorted(ring) for ring in rings if len(ring) > 1] == []


def test_every_module_has_its_layer():
    assert {layer(module) for module in MODULES} == set(RANK)


def test_imports_go_down_only():
    assert [(a, b) for a, b in sorted(edges(typing=True)) if RANK[layer(a)] < RANK[layer(b)]] == []


def engines_named(tree):
    """The lines of a module that compare with the name of an engine, or pass one on."""
    for node in ast.walk(tree):
        parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        if isinstance(node, ast.keyword) and node.arg == "engine":
            parts = [node.value]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "one_of":
            parts = node.args
        inner = [x for part in parts for x in ast.walk(part) if isinstance(x, ast.Constant)]
        yield from (x.lineno for x in inner if x.value in ("numpy", "numba", "cuda"))


def test_no_engine_is_named_outside_engines():
    """Elsewhere a name is an option that is passed on; `options` lists the names and `checks` has that of the GPU."""
    assert list(engines_named(ast.parse("f(engine='numpy') or x.engine in ('numba', y)"))) == [1, 1]
    trees = {name: ast.parse(path.read_text()) for name, path in MODULES.items() if layer(name) != "engines"}
    assert {name: found for name, tree in trees.items() if (found := list(engines_named(tree)))} == {}


def bound_names(tree):
    """Names that a module binds, other than submodules that it imports as such."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (x.id for target in node.targets for x in ast.walk(target) if isinstance(x, ast.Name))
        elif isinstance(node, ast.ImportFrom) and (node.module or node.level != 1):
            yield from (name.asname or name.name for name in node.names)


def test_no_name_shadows_a_module():
    for name in mg.__all__:
        assert f"marginalis.{name}" not in MODULES or getattr(mg, name).__name__ == f"marginalis.{name}"
    packages = [module for module, path in MODULES.items() if path.name == "__init__.py"]
    bound = [f"{module}.{name}" for module in packages for name in bound_names(ast.parse(MODULES[module].read_text()))]
    assert [name for name in bound if name in MODULES] == []


@pytest.mark.parametrize("folder", [ROOT, Path(__file__).parent], ids=["package", "tests"])
def test_files_are_short(folder):
    lengths = {str(path.relative_to(folder)): len(path.read_text().splitlines()) for path in folder.rglob("*.py")}
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}
