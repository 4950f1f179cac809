"""The command `treadle`. A command imports what it needs when it runs, so that `treadle --help` is instant."""


def main() -> None:
    """Run the installed command `treadle`."""
    from treadle.surfaces.cli.app import main as run_command_line

    run_command_line()
