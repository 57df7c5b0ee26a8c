"""``nmt completion``: print the completion script of a shell, or write it where the shell reads it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from nmt.config.composing.programs import program_of
from nmt.errors import OutputError, UsageError, did_you_mean
from nmt.storage.files import atomic_write
from nmt_cli.command_line.programs import COMMANDS
from nmt_cli.shell.completion import MARK, SHELLS, script

LONGEST_START = 10  # seconds that an interactive shell may take

# By shell: the variable of its folder of data or configurations, the default, and the name of the script below.
PLACES = {
    "bash": ("XDG_DATA_HOME", ".local/share", "bash-completion/completions/nmt"),
    "zsh": ("XDG_DATA_HOME", ".local/share", "zsh/site-functions/_nmt"),
    "fish": ("XDG_CONFIG_HOME", ".config", "fish/completions/nmt.fish"),
}
# What an interactive shell runs to find out whether it will read the script, and the line that it needs if not.
CHECKS = {
    "bash": "declare -F _comp_load || declare -F __load_completion || declare -F _completion_loader",
    "zsh": "(( $+functions[compdef] )) && [[ -n ${{fpath[(re){folder}]}} ]]",
    "fish": "true",
}
LINES = {"bash": "source {file}", "zsh": "fpath=({folder} $fpath); autoload -U compinit && compinit"}


def complete(words: Sequence[str]) -> None:
    """Run ``nmt completion WORDS``."""
    if len(words) == 1 and words[0] in SHELLS:
        print(script(words[0]), end="")
    elif words[:1] == ["install"] and len(words) <= 2:
        _install(words[1] if words[1:] else Path(os.environ.get("SHELL", "")).name)
    else:
        hint = did_you_mean(words[0], ["install", *SHELLS]) if words else ""
        raise UsageError(f"nmt completion {' '.join(words)}: give install [SHELL], or one of {', '.join(SHELLS)}{hint}")


def _install(shell: str) -> None:
    if shell not in SHELLS:
        raise UsageError(
            f"completion is for {', '.join(SHELLS)}, not for '{shell}'; name one: nmt completion install bash"
        )
    variable, default, name = PLACES[shell]
    file = Path(os.environ.get(variable) or Path.home() / default, name)
    # Bash and fish look for a file with the name of the command, zsh for those that a file names in its first line.
    links = [] if shell == "zsh" else [file.with_name(program_of(command) + file.suffix) for command in COMMANDS]
    for path in (file, *links):
        if os.path.lexists(path) and not (path.is_file() and MARK.encode() in path.read_bytes()[:1000]):
            raise OutputError(f"{path} is not a file of nmt; remove it, or load the output of nmt completion {shell}")
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as output:
        output.write(script(shell).encode())
    for link in links:
        link.unlink(missing_ok=True)
        link.symlink_to(file.name)
    names = {"file": file, "folder": file.parent}
    if _succeeds(shell, CHECKS[shell].format(**names)):
        print(f"{file}: written; start a new shell to use it")
    else:
        print(f"{file}: written; add this line to ~/.{shell}rc:\n{LINES[shell].format(**names)}")


def _succeeds(shell: str, code: str) -> bool:
    """Whether code succeeds in an interactive shell, after its start-up files."""
    nowhere, words = subprocess.DEVNULL, [shell, "-i", "-c", code]
    try:  # in a session without a terminal, which the shell would take
        subprocess.run(
            words,
            stdin=nowhere,
            stdout=nowhere,
            stderr=nowhere,
            timeout=LONGEST_START,
            check=True,
            start_new_session=True,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True
