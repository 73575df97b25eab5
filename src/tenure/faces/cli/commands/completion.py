"""`tenure completion`: a script for the shell that completes commands and options."""

import click
from click.shell_completion import get_completion_class

from tenure.faces.cli.options import examples

SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    epilog=examples(
        'eval "$(tenure completion bash)"                  in ~/.bashrc',
        'eval "$(tenure completion zsh)"                   in ~/.zshrc',
        "tenure completion fish > ~/.config/fish/completions/tenure.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, *, shell: str) -> None:
    """Print a script that completes commands in SHELL."""
    made = get_completion_class(shell)
    root = context.find_root().command
    if made is not None:
        click.echo(made(root, {}, "tenure", "_TENURE_COMPLETE").source())
