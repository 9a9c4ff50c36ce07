"""Security of a run's channels: only processes with its random token may connect, with TLS if requested."""

from __future__ import annotations

import datetime
import hmac
import ipaddress
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from primitives.errors import EnvironmentFault

#: The name in a generated certificate instead of a host, so that it is valid on any host of a node.
_NAME = "seep.internal"
_VALID = datetime.timedelta(days=398)
_CLOCKS_DIFFER = datetime.timedelta(days=1)
_SCHEME = "Bearer "


@dataclass(frozen=True, slots=True)
class Security:
    """The secret that all processes of a run share; it is sent with their tasks, over Spark's own channels."""

    token: str = field(repr=False)
    certificate: bytes | None = field(default=None, repr=False)  #: PEM; None for no encryption
    key: bytes | None = field(default=None, repr=False)
    name: str | None = None  #: the name in the certificate, if it is not the host

    @classmethod
    def open(cls) -> Security:
        """Makes a random token, without encryption."""
        return cls(secrets.token_urlsafe(32))

    @classmethod
    def with_tls(cls, *hosts: str) -> Security:
        """Makes a random token, and a certificate for this run only, which clients must show too.

        It is valid for any host; the given hosts are named in it for other clients.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        return cls(cls.open().token, _self_signed(key, hosts), _pem(key), _NAME)

    @classmethod
    def with_files(cls, certificate: Path | str, key: Path | str) -> Security:
        """Makes a random token, with the user's own PEM files; the certificate must name the hosts of the nodes.

        The file is trusted as it is: the certificate is its own authority, or that of its authority follows it.
        """
        chain, secret = _read(certificate), _read(key)
        try:
            certificates = x509.load_pem_x509_certificates(chain)
            private = serialization.load_pem_private_key(secret, password=None)
        except (ValueError, TypeError) as reason:
            raise EnvironmentFault(
                f"{certificate} and {key} must hold a certificate and its private key (PEM, not encrypted): {reason}"
            ) from reason
        if certificates[0].public_key() != private.public_key():
            raise EnvironmentFault(f"the key in {key} is not that of the certificate in {certificate}")
        return cls(cls.open().token, chain, secret)

    @property
    def encrypted(self) -> bool:
        return self.certificate is not None

    @property
    def mutual(self) -> bool:
        """Whether a client must show the certificate too: it can, if it was made for this run."""
        return self.name is not None

    @property
    def header(self) -> tuple[bytes, bytes]:
        """The header that a client sends with every call."""
        return b"authorization", (_SCHEME + self.token).encode()

    def admits(self, authorization: str | bytes | None) -> bool:
        """Whether to accept a client with this header; takes equally long for any wrong token of the same length."""
        given = authorization if isinstance(authorization, bytes) else (authorization or "").encode()
        return hmac.compare_digest(given, self.header[1])


def _read(path: Path | str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as reason:
        raise EnvironmentFault(f"TLS needs the file {path}, which cannot be read: {reason}") from reason


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _self_signed(key: ec.EllipticCurvePrivateKey, hosts: tuple[str, ...]) -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME), *map(_host, hosts)]), critical=False)
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
