"""Keys and tokens made at run time: an authority, identities with SPIFFE names, and wrong ones for the proofs.

Everything is written with mode 0600 into the deployment's own folder and removed with it.
SPIFFE names in the URI SAN: https://github.com/spiffe/spiffe/blob/main/standards/X509-SVID.md, section 2.
"""

import datetime
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

TRUST_DOMAIN = "meshtrial.test"
_LIFETIME = datetime.timedelta(days=7)  # a mesh may be installed once for a whole study


@dataclass(frozen=True)
class Identity:
    """Files of a certificate and its key, with the certificate's SPIFFE name."""

    spiffe: str
    certificate: Path
    key: Path
    authority: Path


def spiffe_name(workload: str) -> str:
    """Return ``spiffe://<trust domain>/ns/trial/sa/<workload>``."""
    return f"spiffe://{TRUST_DOMAIN}/ns/trial/sa/{workload}"


def write_private(path: Path, data: bytes) -> Path:
    """Write a new file that only its owner may read; FileExistsError if it exists."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(data)
    return path


class Authority:
    """A certificate authority of one deployment; its files begin with its name, so that a folder can hold two."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"meshtrial {name}")])
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        self._certificate = (
            _builder(subject, subject, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.path = write_private(folder / f"{name}.crt", _pem(self._certificate))

    def issue(self, workload: str) -> Identity:
        """Issue a leaf certificate for client and server use in the workload's name."""
        key = ec.generate_private_key(ec.SECP256R1())
        spiffe = spiffe_name(workload)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, workload)])
        usage = x509.KeyUsage(True, False, False, False, True, False, False, False, False)
        extended = x509.ExtendedKeyUsage(
            [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH, x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]
        )
        certificate = (
            _builder(subject, self._certificate.subject, key)
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(spiffe)]), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(extended, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        stem = f"{self._name}-{workload}"
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Identity(
            spiffe,
            write_private(self._folder / f"{stem}.crt", _pem(certificate)),
            write_private(self._folder / f"{stem}.key", pem),
            self.path,
        )


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _LIFETIME)
    )


def issuer_chain() -> dict[str, str]:
    """Return a root and an issuing authority under it, as PEM texts: ``ca_pem``, ``issuer_crt``, ``issuer_key``.

    Names and extensions follow Linkerd's documentation:
    https://linkerd.io/2-edge/tasks/generate-certificates/
    """
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root, issuer = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{part}.linkerd.cluster.local")])
        for part in ("root", "identity")
    )
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)

    def authority(subject: x509.Name, subject_key: ec.EllipticCurvePrivateKey, depth: int) -> str:
        builder = _builder(subject, root, subject_key).add_extension(usage, critical=True)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=depth), critical=True)
        return _pem(builder.sign(root_key, hashes.SHA256())).decode()

    key_format = serialization.PrivateFormat.TraditionalOpenSSL
    secret = key.private_bytes(serialization.Encoding.PEM, key_format, serialization.NoEncryption()).decode()
    return {"ca_pem": authority(root, root_key, 1), "issuer_crt": authority(issuer, key, 0), "issuer_key": secret}


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


# --- tokens: RS256, a valid one and those that must be refused --------------------------------------------------------

ISSUER = "https://issuer.meshtrial.test"
AUDIENCE = "meshtrial"
KEY_ID = "trial"
_LIFETIME_S = 2 * 24 * 3600


@dataclass(frozen=True)
class Tokens:
    """The public keys of one signing key, and tokens signed with it or with another key."""

    jwks: dict[str, Any]  # the public key set (RFC 7517)
    good: str = field(repr=False)
    expired: str = field(repr=False)
    forged: str = field(repr=False)  # signed by another key under the same key id
    foreign: str = field(repr=False)  # for another audience

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers of the load generator, with the valid token."""
        return (("Authorization", f"Bearer {self.good}"),)


def make_tokens() -> Tokens:
    """Make new keys and tokens; the private keys are not kept."""
    key, stranger = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
    public = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    public |= {"kid": KEY_ID, "use": "sig", "alg": "RS256"}
    public.pop("key_ops", None)
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "load-generator", "iat": now, "exp": now + _LIFETIME_S}

    def sign(signer: rsa.RSAPrivateKey, **changed: Any) -> str:
        return jwt.encode(claims | changed, signer, algorithm="RS256", headers={"kid": KEY_ID})

    return Tokens(
        jwks={"keys": [public]},
        good=sign(key),
        expired=sign(key, iat=now - 7200, exp=now - 3600),
        forged=sign(stranger),
        foreign=sign(key, aud="somebody-else"),
    )
