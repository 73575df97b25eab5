"""The command as a whole, without a server: what it imports, how it ends, what it says."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tenure import __version__
from tenure.core.operation import OperationState
from tenure.core.verb import VerbName
from tenure.faces.cli import main as cli
from tenure.faces.cli.exits import ADVICE, OF_STATE, Exit, ServerRefusal
from tenure.faces.http.problems import PROBLEMS

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("TENURE_HOME", "TENURE_ADDRESS", "TENURE_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def commands(group: click.Command, path=()):
    """Every command that does something, with how it is typed."""
    if not isinstance(group, click.Group):
        yield path, group
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))


EVERY = dict(commands(cli._command()))
NOT_FOR_HASTE = {"rich", "yaml", "msgspec", "aiohttp", "httpx", "requests", "starlette", "uvicorn",
                 "apsw", "asyncio", "ssl", "logging"}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "allowed_modules"),
    [
        (["--version"], set()),
        (["--help"], set()),
        (["agnt"], set()),
        (["agent", "list"], set()),
        (["agent", "list", "--address", "http://127.0.0.1:1"], {"ssl"}),
        (["operation", "watch", "0" * 32], set()),
        (["plan", "-f", "gone.yaml"], {"yaml"}),
    ],
)
def test_a_command_imports_no_more_than_it_needs(arguments, allowed_modules):
    script = (
        "import sys; from tenure.faces.cli.main import main; code = main(sys.argv[1:]);"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    found = set(ran.stderr.splitlines()[-1].split())
    assert "click" in found
    assert not (NOT_FOR_HASTE - allowed_modules) & found


def test_the_version_is_told(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"tenure {__version__}\n"


def test_every_command_has_help_that_teaches(capsys):
    for path, command in EVERY.items():
        assert command.help, path
        assert cli.main([*path, "--help"]) == 0
        said = capsys.readouterr().out
        assert "\x08" not in said
        assert "\n  Examples:\n    " in said, path
    for group in {path[0] for path in EVERY if len(path) > 1}:
        assert cli.main([group, "--help"]) == 0
        said = capsys.readouterr().out
        assert "\n  Examples:\n    " in said, group
        assert "..." not in said.partition("ARGS]...")[2], "what it does is cut off"
    verbs = {verb.removesuffix("_agent") for verb in VerbName if verb is not VerbName.RECOVER}
    others = {"invite", "invoke", "list", "logs", "show"}
    assert [path[1] for path in EVERY if path[0] == "agent"] == sorted(verbs | others)


def examples_of(command: click.Command):
    """What its help says one types, each as its words; what is typed inside another one too."""
    for line in (command.epilog or "").splitlines():
        for arguments in re.findall(r"\btenure [^()|&>]*", line):
            yield shlex.split(arguments.partition("  ")[0].replace("$", ""))[1:]


def test_every_example_is_one_that_can_be_typed():
    root = cli._command()
    groups = {name: root.get_command(click.Context(root), name) for name, *rest in EVERY if rest}
    seen = 0
    for command in (root, *groups.values(), *EVERY.values()):
        assert command is not None
        for words in examples_of(command):
            arguments = next(path for path in (tuple(words[:2]), tuple(words[:1])) if path in EVERY)
            options = EVERY[arguments].params
            known = {name for one in options for name in (*one.opts, *one.secondary_opts)}
            said = {word for word in words if word.startswith("-") and word != "-"}
            assert said <= known, (words, said - known)
            seen += 1
    assert seen > len(EVERY)


def test_every_command_that_asks_takes_the_same_options():
    for path, command in EVERY.items():
        names = {name for option in command.params for name in option.opts}
        if path[0] in {"up", "worker", "completion"}:
            continue
        assert {"--home", "--address", "--token-file"} <= names, path
        if path != ("wait",) and path[1:] not in {("invoke",), ("logs",)}:
            assert "-o" in names, path


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["agnt"], 2, "did you mean agent?"),
        (["worker"], 2, "a worker needs a shared store"),
        (["up", "--api-only"], 2, "cannot share a file in the home"),
        (["zzz"], 2, "see tenure --help"),
        (["agent", "list", "--bogus"], 2, "--bogus"),
        (["agent", "create"], 2, "give a NAME and --command, or -f FILE"),
        (["agent", "create", "a", "--command", "'"], 2, "--command"),
        (["agent", "create", "A", "--command", "x"], 2, "name: "),
        (["agent", "create", "a", "--command", "x", "--env", "A"], 2, "not KEY=VALUE"),
        (["agent", "create", "a", "--command", "x", "--env", "A=1", "--env", "A=2"], 2, "twice"),
        (["agent", "list"], 1, "start one: tenure up"),
        (["agent", "list", "--address", "nonsense"], 2, "not the address of a server"),
        (["agent", "list", "--address", "http://127.0.0.1:1"], 4, "there is no token"),
        (["apply", "-f", "gone.yaml"], 2, "gone.yaml: it cannot be read"),
        (["operation", "adopt", "0" * 32, "s", "--result", "{"], 2, "--result"),
    ],
)
def test_what_cannot_be_done_ends_with_its_code_and_a_sentence(arguments, code, words, capsys):
    assert cli.main(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


def test_no_server_is_told_apart_from_no_token(capsys, monkeypatch):
    monkeypatch.setenv("TENURE_TOKEN", "t")
    assert cli.main(["agent", "list", "--address", "http://127.0.0.1:1"]) == 1
    assert "no server answers at http://127.0.0.1:1" in capsys.readouterr().err


def test_options_of_place_may_stand_before_the_command_or_after_it(capsys):
    assert cli.main(["--home", "/one", "agent", "list"]) == 1
    assert "no server runs in /one" in capsys.readouterr().err
    assert cli.main(["--home", "/one", "agent", "list", "--home", "/two"]) == 1
    assert "no server runs in /two" in capsys.readouterr().err


def test_every_refusal_of_the_server_has_an_exit_code():
    codes = {
        code: ServerRefusal(meaning.status, {"code": code}).code
        for code, meaning in PROBLEMS.items()
    }
    assert codes["unauthenticated"] == codes["forbidden"] == Exit.AUTHENTICATION
    assert codes["invalid_field"] == codes["idempotency_mismatch"] == Exit.USAGE
    assert codes["not_found"] == codes["name_taken"] == codes["internal"] == Exit.FAILED
    assert set(codes.values()) == {Exit.USAGE, Exit.AUTHENTICATION, Exit.FAILED}
    assert set(ADVICE) <= set(PROBLEMS)


def test_advice_names_what_it_is_about_or_is_left_out():
    problem = {"code": "operation_in_progress", "operation": "0" * 32}
    assert ServerRefusal(409, problem).advice.startswith(f"tenure operation watch {'0' * 32}; ")
    assert ServerRefusal(409, {"code": "suspended"}).advice == ""
    assert ServerRefusal(409, {"code": "suspended"}, agent="a").advice == "tenure agent resume a"
    gone = {"code": "not_found", "detail": "there is no operation x"}
    assert ServerRefusal(404, gone).advice == "tenure operation list shows the existing ones"
    assert ServerRefusal(404, {"code": "not_found", "detail": "there is no plan x"}).advice == ""


def test_every_end_of_an_operation_has_an_exit_code():
    ends = {
        OperationState.SUCCEEDED: 0,
        OperationState.COMPENSATED: 1,
        OperationState.ABANDONED: 1,
        OperationState.STUCK: 6,
    }
    assert ends == OF_STATE


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    assert "_TENURE_COMPLETE" in capsys.readouterr().out


def test_the_reference_names_every_command_option_and_exit_code():
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    for path, command in EVERY.items():
        assert f"# tenure {' '.join(path)}\n" in page, path
        for option in command.params:
            if isinstance(option, click.Option):
                assert f"`{option.opts[-1]}" in page, (path, option.opts)
    for code in Exit:
        assert f"| {code.value} |" in page
    for name in ("TENURE_HOME", "TENURE_ADDRESS", "TENURE_TOKEN"):
        assert name in page


class ProcessExit(BaseException):
    """The process is left at once, with this code."""


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_command_that_has_asked_temporal_leaves_without_taking_the_interpreter_down(
    is_loaded, monkeypatch, capfd
):
    """Its library's threads abort a process whose interpreter is on its way out."""

    def leave(code):
        raise ProcessExit(code)

    monkeypatch.setattr(sys, "argv", ["tenure", "--version"])
    monkeypatch.setattr("os._exit", leave)
    monkeypatch.delitem(sys.modules, "temporalio", raising=False)
    if not is_loaded:
        assert cli.main() == 0
        return
    monkeypatch.setitem(sys.modules, "temporalio", sys)
    with pytest.raises(ProcessExit, match="0"):
        cli.main()
    assert capfd.readouterr().out.startswith("tenure ")


def test_a_full_disk_ends_what_is_printed_with_a_sentence(capsys, monkeypatch):
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert cli.main(["--version"]) == Exit.FAILED
    assert "there is no space left" in capsys.readouterr().err


def test_what_else_goes_wrong_is_not_taken_for_that(monkeypatch):
    def broken():
        raise PermissionError(13, "no", "/a")

    monkeypatch.setattr(cli, "_command", broken)
    with pytest.raises(PermissionError):
        cli.main(["--version"])
