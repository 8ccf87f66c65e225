from __future__ import annotations

import ssl
from pathlib import Path

import certifi
import pytest

from app.edge.upstream import Upstream, trust
from app.settings.sections import Sections
from tests.edge.upstream.peers import Authority, answers, ask, response, serve


async def test_authority_named_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, authority: Authority, tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    client = Upstream(ssl_context=trust.trusted())
    async with serve(answers(response(b"hi")), authority.server()) as server:
        assert await ask(client, server.url) == (200, b"hi")
    await client.aclose()


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("SSL_CERT_FILE", "ca.pem", ""),
        ("SSL_CERT_FILE", "", ""),
        ("SSL_CERT_FILE", "none.pem", "the file that it names can't be read (No such file or directory); name a file"),
        (
            "SSL_CERT_FILE",
            "empty.pem",
            "the file that it names holds no certificate; name a file of certificates in PEM",
        ),
        ("SSL_CERT_FILE", "certs", "the file that it names can't be read (Is a directory)"),
        ("SSL_CERT_DIR", "certs", ""),
        ("SSL_CERT_DIR", "none:certs", ""),
        (
            "SSL_CERT_DIR",
            "none:ca.pem",
            "no directory that it names can be read; name one of certificates, or unset it",
        ),
    ],
)
def test_certificates_that_the_environment_names_and_are_not_there_are_told(
    name: str, value: str, fault: str, monkeypatch: pytest.MonkeyPatch, authority: Authority, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ca.pem").write_text(authority.pem)
    Path("empty.pem").touch()
    Path("certs").mkdir()
    monkeypatch.setenv(name, value)
    told = [str(one) for one in trust.untrusted(Sections())]
    assert len(told) == bool(fault)
    assert all(one.startswith(f"{name}: {fault}") for one in told)


def test_machine_without_certificates_gets_certifis(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    expected = ssl.create_default_context(cafile=certifi.where()).cert_store_stats()
    assert trust.trusted().cert_store_stats() == expected


def test_one_directory_of_certificates_among_several_is_enough(
    monkeypatch: pytest.MonkeyPatch, authority: Authority, tmp_path: Path
) -> None:
    """Whoever names a company's own does not want all others besides."""
    (tmp_path / "ca.pem").write_text(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", f"{tmp_path / 'none'}:{tmp_path}")
    assert trust.trusted().cert_store_stats()["x509_ca"] == 0
