"""What holds for the code as a whole: what is installed, what imports what, what compiles."""

from __future__ import annotations

import ast
import configparser
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"orograph": "pipeline", "orograph.tiles": "tiles", "orograph.kernels": "kernels"}
NOT_SHIPPED = {".pyc", ".nbi", ".nbc", ".source"}  # what running the code leaves beside it


def files_of(package: str) -> dict[str, Path]:
    """The files of one of the three folders, by the path they have when installed."""
    folder = ROOT / FOLDERS[package]
    installed = package.replace(".", "/")
    return {
        f"{installed}/{path.relative_to(folder).as_posix()}": path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in NOT_SHIPPED
    }


def modules() -> dict[str, Path]:
    """Every module of orograph, by name."""
    every = {name: path for package in FOLDERS for name, path in files_of(package).items()}
    return {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path
        for name, path in every.items()
        if path.suffix == ".py"
    }


def imported_by(path: Path, nodes: Iterable[ast.AST]) -> set[str]:
    """The modules that nodes of a file import."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            # `from orograph.tiles import grid` imports a module, `from x import name` may not.
            known = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
            found.update(known or {str(node.module)})
    return found


@cache
def parse(path: Path) -> ast.Module:
    """The syntax of a file, which no test changes."""
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", autouse=True)
def syntax_of_files() -> Iterator[None]:
    """Keep the syntax of files for the tests of this module, and not longer."""
    yield
    parse.cache_clear()


@cache
def imports(path: Path) -> frozenset[str]:
    """The modules that a file imports anywhere."""
    return frozenset(imported_by(path, ast.walk(parse(path))))


MODULES = modules()


def run(*command: str | Path, **variables: str) -> str:
    """Run a program in the project's root, and return what it printed."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that would be published: built from the sdist, not from the working tree."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


def test_wheel_holds_the_tree_and_nothing_else(wheel: Path) -> None:
    expected = {name: path for package in FOLDERS for name, path in files_of(package).items()}
    assert "orograph/py.typed" in expected
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert {name.split("/")[0] for name in names} == {"orograph"}
        # In a subfolder, or of a kind that pyproject.toml does not list.
        assert expected.keys() - names == set(), "in the tree and not in the wheel"
        assert names - expected.keys() == set(), "in the wheel and not in the tree"
        different = [n for n in names if archive.read(n) != expected[n].read_bytes()]
    assert different == []


def test_the_page_of_the_wheel_leads_to_files_of_its_version(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = archive.read(name).decode()
    assert "Description-Content-Type: text/markdown\n" in metadata
    page = metadata.split("\n\n", 1)[1]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    repository, tag = project["urls"]["Repository"], f"v{project['version']}"
    raw = repository.replace("//github.com/", "//raw.githubusercontent.com/")
    link = re.compile(r"(!?)\[[^\]]*\]\(([^)\s]+)\)")
    expected = []
    for picture, target in link.findall((ROOT / "README.md").read_text(encoding="utf-8")):
        if not target.startswith(("https://", "#")):
            assert (ROOT / target).exists()
            target = f"{raw if picture else f'{repository}/blob'}/{tag}/{target}"
        expected.append((picture, target))
    assert link.findall(page) == expected
    assert any(picture for picture, _ in expected)


def test_commands_of_the_wheel_exist_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (listing,) = (name for name in names if name.endswith(".dist-info/entry_points.txt"))
        points = configparser.ConfigParser()
        points.read_string(archive.read(listing).decode())
    assert dict(points["console_scripts"]) == {"orograph": "orograph.cli.main:main"}
    assert "orograph/cli/main.py" in names


def test_every_module_of_the_wheel_imports(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path, wheel)
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]: print(importlib.import_module(name).__file__)"
    )
    names = [name for name in MODULES if not name.endswith("__main__")]
    places = run(sys.executable, "-c", code, *names, PYTHONPATH=str(tmp_path)).split("\n")
    for place in filter(None, places):
        assert Path(place).is_relative_to(tmp_path), f"{place} is not the wheel's"


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        pytest.param(
            "orograph.tiles",
            {"dask", "distributed", "cupy", "dask_cuda", "orograph.kernels"},
            id="tiles know neither Dask nor CuPy nor kernels",
        ),
        pytest.param(
            "orograph.kernels",
            {"dask", "distributed", "dask_cuda", "zarr"},
            id="kernels know neither Dask nor Zarr",
        ),
    ],
)
def test_imports_run_one_way(package: str, forbidden: set[str]) -> None:
    for name, path in MODULES.items():
        if path.relative_to(ROOT).parts[0] != FOLDERS[package]:
            continue
        for imported in imports(path):
            parents = {imported.rsplit(".", n)[0] for n in range(imported.count(".") + 1)}
            assert not parents & forbidden, f"{name} imports {imported}"
            if imported.split(".")[0] == "orograph":
                lower = ("orograph.tiles", "orograph.kernels")
                assert imported.startswith(lower), f"{name} imports {imported} of the pipeline"


def test_only_the_kernels_know_which_backend_it_is() -> None:
    names = {"numba", "cuda"}
    found = [
        f"{path}:{node.lineno}"
        for path in files_of("orograph").values()
        if path.suffix == ".py"
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
        for constant in ast.walk(side)
        if isinstance(constant, ast.Constant) and constant.value in names
    ]
    assert found == [], "ask the backend: orograph.kernels.backends.get_backend"


def test_nothing_is_unpickled() -> None:
    """Whoever can write into a folder must not run code in the process that reads it."""
    for name, path in MODULES.items():
        runs_code = {"pickle", "cloudpickle", "marshal", "shelve", "dill", "joblib"}
        assert not {m.split(".")[0] for m in imports(path)} & runs_code, f"{name} imports one"
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"pickle\.load|protocol\.pickle|allow_pickle=True|read_pickle", text)


def imported_at_once() -> dict[str, set[str]]:
    """The modules of orograph that each of them imports when it is imported itself."""
    return {
        name: MODULES.keys() & imported_by(path, parse(path).body) for name, path in MODULES.items()
    }


def test_an_editor_finds_what_a_module_imports_below_src() -> None:
    for path in MODULES.values():
        for name in imports(path):
            if name.split(".")[0] == "orograph":
                place = ROOT / "src" / name.replace(".", "/")
                found = place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()
                assert found, f"{path} imports {name}, which is not below src/"


def test_no_module_needs_itself_to_be_imported() -> None:
    order = list(TopologicalSorter(imported_at_once()).static_order())  # raises CycleError
    assert set(order) == MODULES.keys()


def test_no_module_leads_back_to_itself() -> None:
    """By any import: of a module, within a function, or for types only; the package included."""
    graph = {name: MODULES.keys() & imports(path) - {name} for name, path in MODULES.items()}
    list(TopologicalSorter(graph).static_order())  # raises CycleError, which names them


ONE_WAY = ("tiles", "kernels", "pipeline")
# They gather all public names and stand above all folders, or name the version.
FRONT = ("orograph", "orograph.__main__", "orograph._version")


@pytest.mark.parametrize("top", ONE_WAY)
def test_no_folder_imports_one_that_imports_it(top: str) -> None:
    """By any import: of a module, of a function, or for types alone."""
    folders = {name: path.parent for name, path in MODULES.items()}
    graph: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        if path.relative_to(ROOT).parts[0] == top and name not in FRONT:
            found = {folders[other] for other in imports(path) & MODULES.keys() - set(FRONT)}
            inside = {folder for folder in found if folder.relative_to(ROOT).parts[0] == top}
            node = str(folders[name].relative_to(ROOT))
            graph.setdefault(node, set()).update(
                str(folder.relative_to(ROOT)) for folder in inside - {folders[name]}
            )
    assert len(graph) > 3
    list(TopologicalSorter(graph).static_order())  # raises CycleError, which names them


# A first line says what a function does or returns, what a class or a value is.
NO_TITLE = re.compile(
    r"((return|yield) )?(what|where|whom?|whose|whoever|whatever|that of|those)\b"
    r"|(as|at|by|for|from|how|if|in|of|on|to|when|which|why|with)\b",
    re.IGNORECASE,
)
# "There is no X" and comparisons are English; "it is no X" is not.
IS_NO = re.compile(
    r"(?<!there )\b(are|be|is|was|were) no "
    r"(?!better|faster|fewer|larger|less|longer|more|slower|smaller|worse)",
    re.IGNORECASE,
)


def titles(path: Path) -> Iterator[tuple[int, str]]:
    """The first lines of the docstrings of a file, attributes included, with their places."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node.body[0].lineno, docstring.split("\n")[0]
        body = getattr(node, "body", None)
        if isinstance(body, list):  # that of a lambda is an expression
            yield from titles_of_attributes(body)


def titles_of_attributes(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    """The first lines of the strings that follow assignments, with their places."""
    for assignment, statement in pairwise(body):
        if isinstance(assignment, ast.Assign | ast.AnnAssign) and isinstance(statement, ast.Expr):
            text = statement.value
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield statement.lineno, text.value.strip().split("\n")[0]


def is_no_title(line: str) -> bool:
    """Whether a first line leaves open what a function returns or an attribute holds."""
    return bool(NO_TITLE.match(line) or IS_NO.search(line))


@pytest.mark.parametrize("folder", FOLDERS.values())
def test_first_lines_say_what_a_function_does_or_an_attribute_holds(folder: str) -> None:
    found = [
        f"{path}:{line}: {title}"
        for path in MODULES.values()
        if path.relative_to(ROOT).parts[0] == folder
        for line, title in titles(path)
        if is_no_title(title)
    ]
    assert not found, "say what it does, returns or is:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("What a visit sends along a link.", True),
        ("Return what a cell costs.", True),
        ("Return those of the pits.", True),
        ("How far a run is.", True),
        ("Of the whole array.", True),
        ("That of the labels.", True),
        ("Return None if it is no store.", True),
        ("Return the cost of a step.", False),
        ("Return None if there is no store.", False),
        ("Return whether a path is no longer than a bound.", False),
        ("Whether a component has a table.", False),
        ("Forests of grids.", False),
        ("Interface of a backend.", False),
        ("Those above.", True),
        ("Key of the object.", False),
    ],
)
def test_a_first_line_that_says_nothing_is_found(line: str, refused: bool) -> None:
    assert is_no_title(line) == refused


def is_compiled(function: ast.FunctionDef) -> bool:
    """Whether Numba compiles a function."""
    decorators = " ".join(map(ast.unparse, function.decorator_list))
    return re.search(r"\b(compiled|intrinsic)\b", decorators) is not None


def walk_without_annotations(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The parts of a compiled function, for which annotations decide nothing."""
    arguments = [part for part in ast.walk(function.args) if isinstance(part, ast.arg)]
    annotations = {id(function.returns), *(id(argument.annotation) for argument in arguments)}
    parts: list[ast.AST] = [function]
    while parts:
        part = parts.pop()
        yield part
        parts.extend(child for child in ast.iter_child_nodes(part) if id(child) not in annotations)


def test_only_compiled_functions_go_without_annotations() -> None:
    for name in (name for name in MODULES if name.startswith("orograph.kernels")):
        for node in parse(MODULES[name]).body:
            if isinstance(node, ast.FunctionDef) and node.returns is None:
                assert is_compiled(node), f"{name}.{node.name}: neither mypy nor Numba checks types"


def test_compiled_code_is_in_kernels_and_takes_nothing_from_outside() -> None:
    # What is outside is not in the stamps by which kernels/compiled.py tells whether to recompile.
    for name, path in MODULES.items():
        tree = parse(path)
        taken = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        if name != "orograph.kernels.compiled":
            jit = {"njit", "jit", "vectorize", "guvectorize", "cfunc", "stencil"}
            found = {alias.name for node in taken for alias in node.names} & jit
            assert not found, f"{name} imports {found}; use orograph.kernels.compiled"
        if not name.startswith("orograph.kernels"):
            continue
        outside = {
            alias.asname or alias.name
            for node in taken
            for alias in node.names
            if str(node.module).startswith("orograph")
            and "orograph.kernels" not in str(node.module)
        }
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and is_compiled(node):
                parts = walk_without_annotations(node)
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value:  # of constants
                parts = ast.walk(node.value)
            else:
                continue
            used = {part.id for part in parts if isinstance(part, ast.Name)}
            assert not used & outside, f"{name}:{node.lineno} takes {used & outside}"


def test_what_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    optional = (line for name, group in extras.items() if name != "dev" for line in group)
    lines = [*project["dependencies"], *optional]
    declared = {canonicalize_name(Requirement(line).name) for line in lines}
    providers = {**packages_distributions(), "cupy": ["cupy-cuda13x"], "dask_cuda": ["dask-cuda"]}
    undeclared = {
        f"{name} imports {top}"
        for name, path in MODULES.items()
        for top in {imported.split(".")[0] for imported in imports(path)}
        if top not in sys.stdlib_module_names | {"orograph"}
        and not {canonicalize_name(provider) for provider in providers.get(top, [])} & declared
    }
    assert undeclared == set()


IMPORT = """
import json, sys, time
import numba.core.event as events
opened = []
sys.addaudithook(lambda event, about: event == "open" and opened.append(str(about[0])))
with events.install_recorder("numba:compile") as compiled:
    import orograph
kernels = [name for name in opened if name.endswith((".nbi", ".nbc"))]
loaded = sorted(sys.modules)
# Once more, when what it needs is there: its own modules, in seconds of the processor.
for name in [name for name in loaded if name.split(".")[0] == "orograph"]:
    del sys.modules[name]
begin = time.process_time()
import orograph
own = time.process_time() - begin
print(json.dumps([len(compiled.buffer), kernels, loaded, own]))
"""


def test_importing_orograph_is_quick_and_needs_no_gpu_or_plotting() -> None:
    compiled, kernels, modules, own = json.loads(run(sys.executable, "-c", IMPORT).splitlines()[-1])
    assert not {name.split(".")[0] for name in modules} & {
        "cupy", "dask_cuda", "pynvml", "matplotlib", "skimage", "networkx"
    }  # fmt: skip
    assert compiled == 0, "a kernel is compiled by an import; compile it when it is called"
    assert not kernels, "compiled kernels are read by an import"
    # Time that others have the processor does not count.
    assert own < 0.5, f"orograph's own modules take {own:.2f} s; import lazily"


def test_the_command_line_imports_no_sparse_matrices_or_images() -> None:
    code = """
import sys
import orograph.cli.main as command_line
command_line._parser()
print([name for name in ("scipy.sparse", "scipy.ndimage") if name in sys.modules])
"""
    assert run(sys.executable, "-c", code).splitlines()[-1] == "[]"


KERNEL = 'extern "C" __global__ void fill(float *out) { out[threadIdx.x] = SOURCE; }'


# Variants are a matter of minutes, and so are all GPUs: no file asks for which it is compiled.
LONG = [
    pytest.param(n, True, marks=pytest.mark.long, id=f"sm_{n}, variants")
    for n in (75, 80, 86, 90, 100, 120)
]


@pytest.mark.parametrize(
    ("architecture", "variants"),
    [*(pytest.param(n, False, id=f"sm_{n}") for n in (75, 90)), *LONG],
)
def test_every_cuda_file_compiles_alone(architecture: int, variants: bool, tmp_path: Path) -> None:
    # The file written here shows that the compiler runs at all, whatever the tree holds.
    example = tmp_path / "example.cu"
    example.write_text(KERNEL.replace("SOURCE", "blockIdx.x"))
    folders = ROOT / "kernels", ROOT / "benchmarks"
    files = [example, *sorted(path for folder in folders for path in folder.rglob("*.cu"))]
    options = [] if variants else ["--defaults"]
    script = ROOT / ".ci/nvrtc.py"
    output = run(sys.executable, script, "--arch", str(architecture), *options, *files)
    for path in files:
        (line,) = (line for line in output.splitlines() if line.startswith(f"{path} sm_"))
        size = line.removeprefix(f"{path} sm_{architecture}: ").split()[0]
        assert int(size) > 500, line


def test_a_cuda_file_with_an_error_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.cu"
    broken.write_text(KERNEL.replace("SOURCE", "missing"))
    with pytest.raises(AssertionError, match=r'broken\.cu\(1\): error: identifier "missing"'):
        run(sys.executable, ROOT / ".ci/nvrtc.py", "--arch", "75", broken)


def test_every_cuda_file_stands_beside_its_numba_counterpart_and_launcher() -> None:
    for path in (ROOT / "kernels").rglob("*.cu"):
        names = {p.name for p in path.parent.glob("*.py")}
        launchers = [n for n in names if n.endswith("cuda.py")]
        texts = [(path.parent / n).read_text(encoding="utf-8") for n in launchers]
        assert any(f'"{path.parent.name}/{path.name}"' in text for text in texts), path.name
        counterparts = {"tile.py", "elimination.py", "product.py", "spread.py", "union_find.py"}
        counterparts |= {"basins.py", "accumulate.py", "march.py"}
        # or a module elsewhere that bears the folder's name; c-blosc does what blosc.cu does
        elsewhere = any((ROOT / "kernels").glob(f"*/{path.parent.name}.py"))
        elsewhere |= path.parent.name == "blosc"
        assert counterparts & names or elsewhere, path.name


def _is_long(decorator: ast.expr) -> bool:
    return ast.unparse(decorator) == "pytest.mark.long"


def test_each_file_of_tests_has_tests_that_are_not_long() -> None:
    """`make test` leaves the long ones out, so a quick form of a proof stays beside them."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        if "@pytest.mark.long\n" not in path.read_text(encoding="utf-8"):
            continue
        found = [
            node
            for node in ast.walk(parse(path))
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        ]
        long = [node.name for node in found if any(map(_is_long, node.decorator_list))]
        assert len(long) < len(found), f"{path}: all tests are long: {', '.join(long)}"


def test_the_long_tests_run_on_a_schedule() -> None:
    flows = [path.read_text(encoding="utf-8") for path in (ROOT / ".github/workflows").iterdir()]
    assert [
        flow for flow in flows if "\n  schedule:\n" in flow and "- run: make test-all\n" in flow
    ]
