"""The command `treadle`. Nothing heavy is imported before a command needs it: `treadle --help` is instant."""


def main() -> None:
    """The entry point of the installed command."""
    from treadle.surfaces.cli.app import app

    app(prog_name="treadle")
