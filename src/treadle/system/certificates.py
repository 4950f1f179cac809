"""Loads the certificate authorities of the machine at the first TLS connection.

aiohttp makes a TLS context when it is imported. Reading the authorities into it takes a tenth of a second of CPU, a
fifth of a short command, and a local model or the Unix socket of another process needs none."""

import os
import ssl
import sys
from importlib import import_module
from typing import Any


class DeferredContext(ssl.SSLContext):
    """A context as `ssl.create_default_context` makes it, whose authorities are read before its first use. A peer
    is verified against no authorities, and so rejected, if they cannot be read."""

    _is_loaded = False

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        self._load()
        return super().wrap_bio(*args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        self._load()
        return super().wrap_socket(*args, **options)

    def _load(self) -> None:
        if not self._is_loaded:
            self._is_loaded = True
            self.load_default_certs(ssl.Purpose.SERVER_AUTH)


def create_deferred_context(*_: Any, **__: Any) -> ssl.SSLContext:
    """Return a context for clients with the settings of `ssl.create_default_context()`."""
    context = DeferredContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode, context.check_hostname = ssl.CERT_REQUIRED, True
    if sys.version_info >= (3, 13):
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    if not sys.flags.ignore_environment:
        context.keylog_filename = os.environ.get("SSLKEYLOGFILE") or None  # pyright: ignore[reportAttributeAccessIssue] -- None is its default
    return context


def import_aiohttp() -> None:
    """Import aiohttp without reading the certificate authorities. Does nothing if it is imported already."""
    if "aiohttp" in sys.modules:
        return
    create = ssl.create_default_context
    ssl.create_default_context = create_deferred_context  # pyright: ignore[reportAttributeAccessIssue]
    ssl.SSLContext.set_default_verify_paths = _skip_if_unverified
    try:
        import_module("aiohttp")
    finally:
        ssl.create_default_context = create
        del ssl.SSLContext.set_default_verify_paths  # that of the base class counts again


def _skip_if_unverified(self: ssl.SSLContext) -> None:
    """Read the authorities, unless the context verifies no peer."""
    if self.verify_mode != ssl.CERT_NONE:
        super(ssl.SSLContext, self).set_default_verify_paths()
