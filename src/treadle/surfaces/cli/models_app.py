"""The commands `treadle models`."""

from functools import partial
from typing import Annotated

from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.shared_options import BaseUrl, Json, ModelArgument

models_app = Group("models")


@models_app.command("list")
def list_models(
    probe: Annotated[bool, Option("--probe", help="Also ask hosted providers that have a key.")] = False,
    timeout: Annotated[float, Option(min=0.1, metavar="SECONDS", help="Time limit of each probe.")] = 2.0,
    json: Json = False,
) -> None:
    """List providers and model aliases.

    Providers on this machine are asked for their models; hosted ones only with --probe. No model is called."""
    from treadle.surfaces.cli import models, process

    process.perform(partial(models.list_models, probe, timeout, json))


@models_app.command("show")
def show_model(model: ModelArgument, json: Json = False) -> None:
    """Show what an alias stands for, and the context window, prices and features of the model."""
    from treadle.surfaces.cli import models, process

    process.perform(partial(models.show_model, model, json))


@models_app.command("pull")
def pull_model(
    name: Annotated[str, Argument(metavar="NAME", help="The name of the model, for example smollm2.")],
) -> None:
    """Download the weights of a local model. An interrupted download is resumed."""
    from treadle.surfaces.cli import models, process

    process.perform(partial(models.pull_model, name))


@models_app.command("test")
def try_model(model: ModelArgument, base_url: BaseUrl = None, json: Json = False) -> None:
    """Send a one-word request to a model, and print whether the key works, the latency and the cost."""
    from treadle.surfaces.cli import models, process

    process.perform(partial(models.try_model, model, base_url, json))
