"""Webhooks are not sent to this machine or its link unless the settings say so."""

from pathlib import Path

import pytest

from tests.automation.receiver import receiver
from tests.automation.sending import sending
from treadle.automation.destinations import (
    LocalDestination,
    VettedResolver,
    explain_local_address,
    explain_local_host,
)
from treadle.config.home import Home
from treadle.domain.errors import UsageError

LOCAL = (
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.0.1", "::1", "::", "fe80::1",
    "fe80::1%lo", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::", "::7f00:1",
    "fd00:ec2::254", "168.63.129.16", "100.100.100.200", "224.0.0.1", "ff02::1",
)  # fmt: skip
ELSEWHERE = ("93.184.216.34", "10.0.0.7", "192.168.1.2", "2606:2800:220:1::1", "fd12::1")
NAMES = ("localhost", "LOCALHOST.", "a.localhost", "127.1", "2130706433", "0x7f000001", "017700000001", "[::1]")


@pytest.mark.parametrize("address", LOCAL)
def test_addresses_of_this_machine_and_its_link_are_local(address: str) -> None:
    assert explain_local_address(address) is not None
    assert explain_local_host(address) is not None


@pytest.mark.parametrize("address", ELSEWHERE)
def test_addresses_of_other_networks_are_not_local(address: str) -> None:
    assert explain_local_host(address) is None


@pytest.mark.parametrize("name", NAMES)
def test_names_and_spellings_of_local_addresses_are_local(name: str) -> None:
    assert explain_local_host(name) is not None


@pytest.mark.parametrize("name", ["example.com", "hooks.internal", "127.evil.example"])
def test_names_of_other_hosts_are_left_to_the_resolver(name: str) -> None:
    assert explain_local_host(name) is None


async def test_a_name_that_resolves_to_a_local_address_is_refused() -> None:
    with pytest.raises(LocalDestination, match="allow_local"):
        await VettedResolver().resolve("localhost", 80)


@pytest.mark.parametrize("url", ["http://127.0.0.1:{}/", "http://localhost:{}/", "http://[::ffff:127.0.0.1]:{}/"])
async def test_a_webhook_sends_nothing_to_a_local_address_by_default(tmp_path: Path, url: str) -> None:
    async with sending(tmp_path) as works, receiver() as other:
        made = await works.add(url.format(other.url.rpartition(":")[2].rstrip("/")))
        await works.kill()
        works.allow_local = False
        works.start()
        await works.run()
        webhook = await works.until(lambda webhook: bool(webhook.problem))
        assert webhook.webhook_id == made.webhook_id
        assert "allow_local" in webhook.problem
        assert not other.received


async def test_a_webhook_with_a_local_url_is_refused_when_it_is_added(tmp_path: Path) -> None:
    async with sending(tmp_path) as works:
        works.book = works.new_book(allow_local=False)
        for url in ("http://127.0.0.1:9/", "http://localhost/", "https://[::1]/x", "http://169.254.169.254/"):
            with pytest.raises(UsageError, match="allow_local"):
                await works.add(url)


def test_local_destinations_are_refused_by_default(tmp_path: Path) -> None:
    assert not Home(tmp_path).config().webhooks.allow_local
    (tmp_path / "config.yaml").write_text("webhooks: {allow_local: true}")
    assert Home(tmp_path).config().webhooks.allow_local
