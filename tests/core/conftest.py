"""Properties are checked the same way in every run of the suite, however slow the machine."""

from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True, database=None)
settings.load_profile("steady")
