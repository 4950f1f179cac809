"""The settings of a Slack channel."""

from msgspec import Struct


class SlackSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Raise ValueError for tokens that are in each other's place: the test of the bot token would not find it."""

    token: str
    """The bot token, xoxb-…"""
    app_token: str
    """The app-level token with connections:write, xapp-…"""
    url: str = "https://slack.com/api/"

    def __post_init__(self) -> None:
        if self.token.startswith("xapp-"):
            raise ValueError(
                "token is an app-level token (xapp-…). Use the bot token (xoxb-…) of the page Install App"
            )
        if self.app_token.startswith("xox"):
            raise ValueError(
                "app_token is not an app-level token. Use the one (xapp-…) of the page Basic Information, with the "
                "scope connections:write"
            )
