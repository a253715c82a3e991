"""The chain that a mesh's own authority starts from, made at run time, for one installation.

It lives in memory and in the cluster only.
"""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LIFETIME_S = 7 * 86400


def issuer_chain() -> dict[str, str]:
    """A root and an issuing authority under it, as PEM: ``ca_pem``, ``issuer_crt``, ``issuer_key``.

    Names and extensions are those that Linkerd's documentation asks for:
    https://linkerd.io/2-edge/tasks/generate-certificates/
    """
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root_name, name = _name("root.linkerd.cluster.local"), _name("identity.linkerd.cluster.local")
    root = _authority(root_name, root_name, root_key.public_key(), root_key, 1)
    issuer = _authority(name, root_name, key.public_key(), root_key, 0)
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    return {
        "ca_pem": root.public_bytes(pem).decode(),
        "issuer_crt": issuer.public_bytes(pem).decode(),
        "issuer_key": secret.decode(),
    }


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _authority(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    depth: int,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(seconds=_LIFETIME_S))
        .add_extension(x509.BasicConstraints(ca=True, path_length=depth), critical=True)
        .add_extension(usage, critical=True)
        .sign(signer, hashes.SHA256())
    )
