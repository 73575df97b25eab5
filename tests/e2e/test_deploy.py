"""The files in deploy/ say what the program understands."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from tenure.faces.cli import main as cli
from tenure.faces.cli import scale, stopping, where

pytestmark = pytest.mark.timeout(300)
DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
UNDERSTOOD = {variable for _, _, _, variable, _ in scale._OPTIONS} | {scale.API_KEY, "TENURE_HOME"}


def lines_of(path: Path) -> dict[str, str]:
    """NAME=value lines."""
    found = (line.partition("=") for line in path.read_text().splitlines())
    return {name: value for name, equals, value in found if equals and not name.startswith("#")}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_starts_a_command_that_is_there_with_options_that_it_takes(unit):
    program, *words = shlex.split(lines_of(unit)["ExecStart"])
    assert Path(program).name == "tenure"
    group = cli._command()
    command = group.get_command(click.Context(group), words[0])
    assert command is not None
    context = command.make_context(words[0], [], resilient_parsing=True)
    _, left, _ = command.make_parser(context).parse_args(words[1:])
    assert not left


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_leaves_agents_running_and_reads_the_settings(unit):
    said = lines_of(unit)
    assert said["KillMode"] == "process"
    assert said["EnvironmentFile"] == "/etc/tenure/tenure.env"
    assert said["Restart"] == "always"
    assert said["StartLimitIntervalSec"] == "0"  # its PostgreSQL may be away for long
    assert float(said["TimeoutStopSec"]) > stopping.STOP_SECONDS


def test_every_variable_is_one_that_is_read():
    said = lines_of(DEPLOY / "tenure.env")
    assert said
    assert set(said) <= UNDERSTOOD
    assert where.location_of({}, {"TENURE_HOME": said["TENURE_HOME"]}).directory() == Path(
        "/var/lib/tenure"
    )


def test_the_services_are_where_the_settings_look_for_them():
    said = lines_of(DEPLOY / "tenure.env")
    composed = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = composed["services"]
    database = services["postgres"]["environment"]["POSTGRES_DB"]
    assert said["TENURE_STORE"].endswith(f"@127.0.0.1:5432/{database}")
    assert services["temporal"]["ports"] == [f"{said['TENURE_TEMPORAL']}:7233"]
    namespace = services["temporal"]["environment"]["DEFAULT_NAMESPACE"]
    assert said["TENURE_TEMPORAL_NAMESPACE"] == namespace
    for service in services.values():
        assert re.search(r":\d", service["image"]), "an image without a version moves by itself"
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:")
    named = {name for service in services.values() for name in service.get("secrets", ())}
    assert named == set(composed["secrets"])
    mounted = {v.partition(":")[0] for s in services.values() for v in s.get("volumes", ())}
    assert mounted == set(composed["volumes"])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_a_unit(unit, tmp_path):
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not here")
    program = tmp_path / "tenure"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    name = unit.name.replace("@.", "@1.")
    copy = tmp_path / name
    copy.write_text(unit.read_text().replace("/opt/tenure/bin/tenure", os.fspath(program)))
    command = [verify, "verify", "--man=no", copy]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    about = [line for line in told.stderr.splitlines() if name in line]
    assert not about, about
