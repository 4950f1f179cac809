"""Model calls over HTTP, independent of the wire format."""

from treadle.system.certificates import import_aiohttp

import_aiohttp()
