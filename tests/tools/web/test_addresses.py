"""Which hosts may be fetched from."""

from collections.abc import Sequence
from ipaddress import ip_address

import pytest

from tests.tools.web.serving import fetched
from treadle.ports.tool import ToolError
from treadle.tools.web.addresses import explain_not_public, explain_not_public_name, resolve_host

each = pytest.mark.parametrize
NOT_PUBLIC = [
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "168.63.129.16",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1",
    "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:7f00:1::", "2001:10::1", "2001:db8::1",
    "2002:7f00:1::", "2002:808:808::", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0",
    "fec0::1", "ff02::1", "2a00:1450::5efe:7f00:1", "4000::1",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "172.32.0.1",
    "100.128.0.1",
    "2606:4700::1111",
    "2a00:1450:4001::1",
]


@each("address", NOT_PUBLIC)
def test_private_and_special_addresses_are_refused(address: str) -> None:
    assert explain_not_public(ip_address(address))


@each("address", PUBLIC)
def test_addresses_of_the_public_internet_are_accepted(address: str) -> None:
    assert explain_not_public(ip_address(address)) is None


@each(
    "host",
    ["localhost", "LOCALHOST", "a.localhost", "printer.local", "metadata.google.internal", "x.home.arpa", "inner",
     "example.com.", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.0.0.1.", "a.0x1", ""],
)  # fmt: skip
def test_local_and_internal_names_are_refused(host: str) -> None:
    assert explain_not_public_name(host)


@each(
    "host", ["example.com", "xn--bcher-kva.example", "1.1.1.1", "2606:4700::1111", "internal.example.com", "0x.dev"]
)
def test_public_names_are_left_to_the_resolver(host: str) -> None:
    assert explain_not_public_name(host) is None


@each(
    ("url", "words"),
    [
        ("ftp://example.com/", "only http and https"),
        ("file:///etc/passwd", "only http and https"),
        ("gopher://example.com", "only http and https"),
        ("example.com", "only http and https"),
        ("http://", ""),
        ("http://user:pass@example.com/", "user name or password"),
        ("http://example.com@127.0.0.1/", "user name or password"),
        ("http://example.com:22/", "port 22"),
        ("http://example.com:0/", "port 0"),
        ("http://example.com:99999/", "not a URL"),
        ("http://[::1", "not a URL"),
        ("http://localhost:8080/", "local network"),
        ("http://2130706433/", "unusual form"),
        ("http://0x7f.0.0.1/", "unusual form"),
        ("http://0177.0.0.01/", "unusual form"),
        ("http://127.0.0.1./", "ends in a dot"),
        ("http://127.0.0.1:8080/", "this machine"),
        ("http://[::1]/", "this machine"),
        ("http://[::ffff:127.0.0.1]/", "another form"),
        ("http://[::ffff:7f00:1]:8080/", "another form"),
        ("http://[0:0:0:0:0:ffff:a9fe:a9fe]/", "another form"),
        ("http://[fe80::1%25eth0]/", ""),
        ("http://169.254.169.254/latest/meta-data/", "credentials"),
        ("http://\uff11\uff12\uff17.\uff10.\uff10.\uff11/", ""),
        ("http://127。0。0。1/", ""),
        ("http://①②⑦.0.0.1/", ""),
        ("http://0/", "unusual form"),
        ("https://" + "a" * 9000, "at most"),
    ],
)  # fmt: skip
async def test_invalid_urls_are_refused_without_a_connection(url: str, words: str) -> None:
    async def nowhere(host: str, port: int) -> Sequence[str]:
        raise OSError("looked up")

    with pytest.raises(ToolError) as raised:
        await fetched(url, explain_not_public, nowhere)
    assert words in str(raised.value)


@each("address", NOT_PUBLIC)
async def test_a_name_that_resolves_to_a_private_address_is_refused(address: str) -> None:
    async def mixed(host: str, port: int) -> Sequence[str]:
        return ["1.1.1.1", address]

    with pytest.raises(ToolError, match=r"is not fetched: innocent\.example is at"):
        await fetched("https://innocent.example/", explain_not_public, mixed)


async def test_addresses_from_the_system_resolver_are_vetted() -> None:
    assert await resolve_host("127.0.0.1", 80) == ["127.0.0.1"]
    with pytest.raises(ToolError, match="was not found"):
        await fetched("https://no-such-host.invalid/", explain_not_public, resolve_host)
