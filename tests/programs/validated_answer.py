"""A pydantic model with a validator: the model is asked again until the answer is right."""

from typing import Literal

from pydantic import BaseModel, Field, field_validator

import treadle


class Line(BaseModel):
    item: str
    price: float = Field(gt=0)


class Invoice(BaseModel):
    number: str
    currency: Literal["EUR", "USD"] = "EUR"
    lines: list[Line]

    @field_validator("number")
    @classmethod
    def check_number(cls, value: str) -> str:
        if not value.startswith("INV-"):
            raise ValueError("must start with INV-")
        return value


agent = treadle.Agent(name="clerk", model="openai/gpt-5", output=Invoice)
invoice = agent.run_sync("Read the invoice.").output
if invoice is not None:
    print(invoice.number, invoice.currency, sum(line.price for line in invoice.lines))
