"""Keys and certificates of one cluster: made when it starts, mode 0600, thrown away when it stops."""

import base64
import datetime
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from testcluster.settings import API_ADDRESS, API_PORT, CLUSTER_DOMAIN, NODES, SERVICE_NETWORK, node_address

_LIFE = datetime.timedelta(days=2)
_CLIENT, _SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


@dataclass(frozen=True)
class Authority:
    """A certificate authority that signs the leaves of one trust domain."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def write_private(path: Path, content: bytes) -> None:
    """Write a file that nobody else may read, from its first byte on."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as output:
        output.write(content)


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _subject(common_name: str, organisation: str = "") -> x509.Name:
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation)] if organisation else []
    return x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _LIFE)
    )


def _authority(folder: Path, name: str, common_name: str) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(common_name)
    certificate = (
        _builder(subject, subject, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    write_private(folder / f"{name}.key", _pem(key))
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return Authority(certificate, key)


def _leaf(
    folder: Path,
    name: str,
    authority: Authority,
    subject: x509.Name,
    usages: Sequence[x509.ObjectIdentifier],
    alternatives: Sequence[x509.GeneralName] = (),
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(subject, authority.certificate.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    certificate = builder.sign(authority.key, hashes.SHA256())
    write_private(folder / f"{name}.key", _pem(key))
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _addresses(*addresses: str) -> list[x509.GeneralName]:
    return [x509.IPAddress(ip_address(address)) for address in addresses]


def write_kubeconfig(folder: Path, user: str, path: Path) -> None:
    """Write a kubeconfig with everything inside, so that a copy of the file still works."""

    def inline(name: str) -> str:
        return base64.b64encode((folder / name).read_bytes()).decode()

    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "meshtrial",
                "cluster": {
                    "server": f"https://{API_ADDRESS}:{API_PORT}",
                    "certificate-authority-data": inline("ca.crt"),
                },
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": inline(f"{user}.crt"),
                    "client-key-data": inline(f"{user}.key"),
                },
            }
        ],
        "contexts": [{"name": "meshtrial", "context": {"cluster": "meshtrial", "user": user}}],
        "current-context": "meshtrial",
    }
    write_private(path, json.dumps(config, indent=1).encode())  # JSON is YAML


def make(folder: Path) -> None:
    """Make every key, certificate and component kubeconfig of a cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    cluster = _authority(folder, "ca", "meshtrial-test-cluster")
    front_proxy = _authority(folder, "front-proxy-ca", "meshtrial-test-front-proxy")
    # RSA, for some clients of the tokens know no other algorithm.
    signer = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    write_private(folder / "service-account.key", _pem(signer))
    (folder / "service-account.pub").write_bytes(
        signer.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    names.append(f"kubernetes.default.svc.{CLUSTER_DOMAIN}")
    _leaf(
        folder,
        "apiserver",
        cluster,
        _subject("kube-apiserver"),
        [_SERVER],
        [*_addresses(API_ADDRESS, "127.0.0.1", str(SERVICE_NETWORK[1])), *map(x509.DNSName, names)],
    )
    _leaf(folder, "front-proxy", front_proxy, _subject("front-proxy-client"), [_CLIENT])
    clients = {
        "apiserver-kubelet": _subject("apiserver-kubelet-client", "system:masters"),
        "admin": _subject("admin", "system:masters"),
        "kube-controller-manager": _subject("system:kube-controller-manager"),
        "kube-scheduler": _subject("system:kube-scheduler"),
        "kube-proxy": _subject("system:kube-proxy"),
        **{node: _subject(f"system:node:{node}", "system:nodes") for node in NODES},
    }
    for name, subject in clients.items():
        _leaf(folder, name, cluster, subject, [_CLIENT, _SERVER], _addresses("127.0.0.1"))
    for node in NODES:
        alternatives = [*_addresses(node_address(node)), x509.DNSName(node)]
        _leaf(folder, f"{node}-serving", cluster, _subject(node), [_SERVER], alternatives)
    for name in clients:
        write_kubeconfig(folder, name, folder / f"{name}.kubeconfig")
