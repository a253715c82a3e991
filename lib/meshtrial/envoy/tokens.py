"""RS256 tokens made at run time and their JWKS: a valid token, and tokens that must be refused."""

import time
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

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
