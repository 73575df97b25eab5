"""The README's text, its blocks of code, and its Python program run as a reader would run it."""

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PUBLIC = {"tenure", "tenure.testing"}
"""What a page may import of us: the surface, and what is for those who test a provider."""


def blocks_of(language: str, text: str = README) -> list[str]:
    """The code between fences of this language, each piece on its own lines of the file."""
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return ["\n" * text.count("\n", 0, block.start(1)) + block[1] for block in found]


def program() -> str:
    """The Python program of the README."""
    (only,) = blocks_of("python")
    return only


def printed_text() -> str:
    """What the README says that it prints."""
    (only,) = blocks_of("text")
    return only.lstrip("\n")


def run_program(python: str, directory: Path) -> str:
    """Save the program in this directory and run it there; what it prints."""
    file = directory / "program.py"
    file.write_text(program(), encoding="utf-8")
    ran = subprocess.run(
        [python, "-I", str(file)],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def deep_imports(code: str) -> list[str]:
    """The modules of ours that this code imports and that are not public."""
    found = []
    top_level_await = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
    for node in ast.walk(compile(code, "page", "exec", flags=top_level_await)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(str(node.module))
    ours = [name for name in found if name.partition(".")[0] in ("tenure", "proofs", "tests")]
    return [name for name in ours if ".".join(name.split(".")[:2]) not in PUBLIC]
