"""A plugin: after `pip install ./examples/plugin`, every agent can have the tool `roll_dice`."""

import random

import treadle


@treadle.tool(effect="none")
def roll_dice(sides: int = 6) -> int:
    "Roll a die."
    return random.randint(1, sides)


TOOLS = [roll_dice]
