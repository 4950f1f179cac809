"""Operations performed by another process: the client side of `surfaces/http`."""

from treadle.system.certificates import import_aiohttp

import_aiohttp()
