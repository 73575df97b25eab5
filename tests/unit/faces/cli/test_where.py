"""Where a token goes: never to another server than the one it is for, never in the clear."""

import pytest

from tenure.faces.cli.exits import CommandExit, Exit
from tenure.faces.cli.where import ServerLocation, location_of, parts


@pytest.fixture
def home(tmp_path):
    made = tmp_path / "home"
    made.mkdir()
    (made / "address").write_text("http://127.0.0.1:7450\n")
    (made / "token").write_text("tenure_home\n")
    return made


def refusal_of(where) -> CommandExit:
    with pytest.raises(CommandExit) as told:
        where.server()
    return told.value


def test_a_home_has_the_address_and_the_token(home):
    server = ServerLocation(home=str(home)).server()
    assert (server.address, server.token) == ("http://127.0.0.1:7450", "tenure_home")


def test_a_homes_token_goes_to_the_homes_address_only(home):
    error = refusal_of(ServerLocation(home=str(home), address="https://elsewhere.example"))
    assert error.code is Exit.AUTHENTICATION
    assert str(home / "token") in error.advice
    same = ServerLocation(home=str(home), address="http://127.0.0.1:7450/")
    assert same.server().token == "tenure_home"


def test_a_given_token_is_not_sent_where_a_file_points(home):
    (home / "address").write_text("https://elsewhere.example\n")
    assert (
        "names another machine" in refusal_of(ServerLocation(home=str(home), token="mine")).sentence
    )
    given = ServerLocation(home=str(home), token="mine", address="https://elsewhere.example")
    assert given.server().token == "mine"
    (home / "address").write_text("http://127.0.0.1:9\n")
    assert ServerLocation(home=str(home), token="mine").server().token == "mine"


def test_no_token_travels_in_the_clear(home):
    error = refusal_of(
        ServerLocation(home=str(home), address="http://elsewhere.example", token="mine")
    )
    assert "unencrypted" in error.sentence


@pytest.mark.parametrize("token", ["a\nb", "ä", "\x7f"])
def test_a_token_that_would_break_a_header_is_refused(home, token):
    assert refusal_of(ServerLocation(home=str(home), token=token)).code is Exit.AUTHENTICATION


def test_without_a_server_it_says_what_to_type(tmp_path):
    error = refusal_of(ServerLocation(home=str(tmp_path)))
    assert error.code is Exit.FAILED
    assert error.advice == f"start one: tenure up --home {tmp_path}"


def test_a_token_file_that_cannot_be_read_is_named(home):
    error = refusal_of(ServerLocation(home=str(home), token_file="/nowhere/token"))
    assert (error.code, "/nowhere/token" in error.sentence) == (Exit.AUTHENTICATION, True)


def test_an_empty_token_file_does_not_stand_for_the_homes_own_token(home, tmp_path):
    (tmp_path / "empty").write_text("\n")
    for file in (str(tmp_path / "empty"), "/dev/null"):
        error = refusal_of(ServerLocation(home=str(home), token_file=file))
        assert (error.code, file in error.sentence) == (Exit.AUTHENTICATION, True)


def test_a_home_is_looked_for_here_then_with_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert str(ServerLocation().directory()) == ".tenure"
    (tmp_path / "user" / ".tenure").mkdir(parents=True)
    assert ServerLocation().directory() == tmp_path / "user" / ".tenure"
    (tmp_path / "here" / ".tenure").mkdir()
    assert str(ServerLocation().directory()) == ".tenure"
    assert str(ServerLocation(home="/x").directory()) == "/x"


def test_the_command_line_comes_before_the_environment():
    environment = {"TENURE_HOME": "/e", "TENURE_ADDRESS": "http://e", "TENURE_TOKEN": "et\n"}
    assert location_of({}, environment) == ServerLocation("/e", "http://e", "", "et")
    given = {"home": "/g", "address": "http://g", "token_file": "/f"}
    assert location_of(given, environment) == ServerLocation("/g", "http://g", "/f", "")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "7450",
        "localhost:7450",
        "ftp://a",
        "http://",
        "http://a/path",
        "http://a?x=1",
        "http://user:pass@a",
        "http://a:port",
        "http://a:99999",
        "http://[::1",
    ],
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(CommandExit, match="not the address"):
        parts(address)


def test_ports_have_their_usual_defaults():
    assert parts("https://a.example") == ("https", "a.example", 443)
    assert parts("http://[::1]:80") == ("http", "::1", 80)
