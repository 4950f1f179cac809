"""Show an image to the model."""

from base64 import b64decode
from pathlib import Path

import treadle

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
picture = Path("picture.png")
picture.write_bytes(b64decode(PIXEL))

agent = treadle.Agent(name="viewer", model="openai/gpt-5")
print(agent.run_sync("What is on the picture?", attachments=[picture]).text)
