"""Certificates for a test: an authority, a server's on loopback, and a client's."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Certificates:
    """Makes them with openssl in `folder`: `ca`, `server`, `client`, each with `.crt` and `.key`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._openssl("req", "-x509", *_new("ca", "a test's authority"), "-out", "ca.crt", "-days", "2")
        (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        for name in ("server", "client"):
            self._openssl("req", *_new(name, name), "-out", f"{name}.csr")
            self._openssl(
                *(
                    "x509",
                    "-req",
                    "-in",
                    f"{name}.csr",
                    "-CA",
                    "ca.crt",
                    "-CAkey",
                    "ca.key",
                    "-CAcreateserial",
                ),
                *("-days", "2", "-extfile", "names", "-out", f"{name}.crt"),
            )

    def server_options(self, port: int) -> dict[str, str]:
        """For a Redis that speaks TLS alone, asks clients for a certificate, and trusts its own kind."""
        return {
            "port": "0",
            "tls-port": str(port),
            "tls-cert-file": str(self.folder / "server.crt"),
            "tls-key-file": str(self.folder / "server.key"),
            "tls-ca-cert-file": str(self.folder / "ca.crt"),
            "tls-replication": "yes",
        }

    def settings(self) -> dict[str, Path]:
        """For StoreSettings."""
        return {
            "tls_ca": self.folder / "ca.crt",
            "tls_cert": self.folder / "client.crt",
            "tls_key": self.folder / "client.key",
        }

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True, timeout=60)


def _new(name: str, title: str) -> tuple[str, ...]:
    return ("-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-subj", f"/CN={title}")
