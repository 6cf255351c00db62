"""The recorder as one file for the environment of a job, into which this package is not installed."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import forensics

NAME = "forensics_recorder.py"
_FOLDER = Path(__file__).parent
_MODULES = ("layout", "writer", "contexts", "recorder")
_HEAD = '''\
"""{about}

Made by `forensics recorder --copy` of forensics {version}; Python 3.11 or newer, the standard library only.
"""

from __future__ import annotations

{imports}
'''
# The others say `layout.STEP`.
_AS_NAMESPACE = "\n\nlayout = SimpleNamespace(**globals())"


def single_file() -> str:
    """Source of one module with everything that `from forensics.recorder import Recorder` needs."""
    sources = {name: (_FOLDER / f"{name}.py").read_text(encoding="utf-8") for name in _MODULES}
    trees = {name: ast.parse(source) for name, source in sources.items()}
    about = ast.get_docstring(ast.parse((_FOLDER / "__init__.py").read_text(encoding="utf-8"))) or ""
    head = _HEAD.format(
        about=about.replace("from forensics.recorder", f"from {Path(NAME).stem}"),
        version=forensics.__version__,
        imports=_imports(list(trees.values())),
    )
    bodies = [_body(sources[name], trees[name]) for name in _MODULES]
    return "\n\n".join([head, bodies[0] + _AS_NAMESPACE, *bodies[1:], '__all__ = ["Recorder"]\n'])


def _imports(trees: list[ast.Module]) -> str:
    """What the modules import from the standard library, each name once."""
    modules: set[str] = set()
    names: defaultdict[str, set[str]] = defaultdict(set, types={"SimpleNamespace"})
    for node in (node for tree in trees for node in tree.body):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.module.startswith(("forensics", "__future__")):
            names[node.module] |= {alias.name for alias in node.names} - {"TYPE_CHECKING"}
    named = (f"from {module} import {', '.join(sorted(found))}" for module, found in sorted(names.items()) if found)
    return "\n".join([*(f"import {name}" for name in sorted(modules)), *named])


def _body(source: str, tree: ast.Module) -> str:
    """The module from its first statement on that is no docstring and no import."""
    own = next(node for node in tree.body[1:] if not isinstance(node, ast.Import | ast.ImportFrom | ast.If))
    first = min([own.lineno, *(each.lineno for each in getattr(own, "decorator_list", ()))])
    return "\n".join(source.splitlines()[first - 1 :]).rstrip()
