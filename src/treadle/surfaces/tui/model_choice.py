"""The models that can be chosen, for the picker."""

from typing import TYPE_CHECKING

from treadle.home.model_setup import make_home_models
from treadle.surfaces.home_access.home_link import HomeLink
from treadle.surfaces.tui.item_view import format_count

if TYPE_CHECKING:
    from treadle.operations.system_facts import ModelView
    from treadle.surfaces.tui.picker_screen import PickerRow


async def list_model_rows(link: HomeLink) -> "list[PickerRow]":
    """Return the rows of the picker: aliases, and the models of all providers that answer."""
    from treadle.operations.system import MODELS, ListModels
    from treadle.surfaces.tui.picker_screen import PickerRow

    found = (await link.call(MODELS, ListModels(probe=True))).items
    usable = sorted(found, key=lambda model: (bool(model.problem), not model.is_default, model.kind != "alias"))
    return [
        PickerRow(model.name, model.name, _describe(model), "●" if model.is_default else "") for model in usable
    ]


def _describe(model: "ModelView") -> str:
    if model.problem:
        return model.problem
    parts = [model.resolved if model.kind == "alias" else ""]
    if model.context_window:
        parts.append(f"{format_count(model.context_window)} context")
    if model.input_price is not None and model.output_price is not None:
        parts.append(f"${model.input_price:g} in, ${model.output_price:g} out")
    if model.local:
        parts.append("local")
    return " · ".join(filter(None, parts))


async def check_model(link: HomeLink, name: str) -> None:
    """Raise UnknownModel or MissingKey if a model cannot be called."""
    if link.engine is not None:
        link.engine.models.resolve(name, None)
        return
    models = make_home_models(link.home)
    try:
        models.resolve(name, None)
    finally:
        await models.close()
