"""Whose certificates are believed: the system's authorities, or those that the environment names, else certifi's.

OpenSSL reads what `SSL_CERT_FILE` and `SSL_CERT_DIR` name and passes over in silence what it can't read, so that is told at the start.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator

import certifi

from app.settings.faults import Fault, Origin
from app.settings.sections import Sections


def trusted() -> ssl.SSLContext:
    """Certificates are checked against the system's store (SSL_CERT_FILE and SSL_CERT_DIR count), else certifi's."""
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"] and not any(map(_listed, _folders())):
        context.load_verify_locations(certifi.where())
    return context


def _folders() -> list[str]:
    """Where OpenSSL looks for single certificates when it needs one; it passes over those that are not there."""
    paths = ssl.get_default_verify_paths()
    return os.environ.get(paths.openssl_capath_env, paths.openssl_capath).split(os.pathsep)


def _listed(folder: str) -> list[str] | None:
    """None for one that can't be read."""
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return None


def untrusted(sections: Sections) -> Iterator[Fault]:  # noqa: ARG001
    """What is wrong with the variables that `trusted` goes by. OpenSSL says nothing of it: later no certificate would be trusted, or others
    than were meant."""
    if file := os.environ.get("SSL_CERT_FILE"):
        remedy = "name a file of certificates in PEM, or unset it"
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
        except ssl.SSLError:
            yield Fault(Origin("SSL_CERT_FILE"), (), f"the file that it names holds no certificate; {remedy}")
        except OSError as fault:
            yield Fault(
                Origin("SSL_CERT_FILE"), (), f"the file that it names can't be read ({fault.strerror}); {remedy}"
            )
    # A list of those that one system or another has is usual.
    if os.environ.get("SSL_CERT_DIR") and all(_listed(folder) is None for folder in _folders()):
        text = "no directory that it names can be read; name one of certificates, or unset it"
        yield Fault(Origin("SSL_CERT_DIR"), (), text)
