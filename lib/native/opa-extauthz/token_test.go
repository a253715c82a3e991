package main

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"testing"
	"time"
)

const (
	issuer   = "https://issuer.test"
	audience = "meshtrial"
)

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func newKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// dataFor returns the data document that trusts key.
func dataFor(key *rsa.PrivateKey) []byte {
	number := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }
	text, err := json.Marshal(map[string]any{
		"issuer": issuer, "audience": audience,
		"jwks": map[string]any{"keys": []any{map[string]string{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1",
			"n": number(key.N), "e": number(big.NewInt(int64(key.E))),
		}}},
	})
	if err != nil {
		panic(err)
	}
	return text
}

func validClaims() map[string]any {
	now := time.Now().Unix()
	return map[string]any{"iss": issuer, "aud": audience, "sub": "client", "iat": now, "exp": now + 600}
}

// claims returns the valid claims with one changed, or removed if value is nil.
func claims(name string, value any) map[string]any {
	changed := validClaims()
	changed[name] = value
	if value == nil {
		delete(changed, name)
	}
	return changed
}

func rs256(t *testing.T, key *rsa.PrivateKey, payload map[string]any) string {
	t.Helper()
	signed := encode(map[string]string{"alg": "RS256", "typ": "JWT", "kid": "1"}) + "." + encode(payload)
	digest := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// confused is signed with HMAC and the public modulus as the secret: the classic attack on verifiers that believe "alg".
func confused(key *rsa.PrivateKey, payload map[string]any) string {
	signed := encode(map[string]string{"alg": "HS256", "typ": "JWT", "kid": "1"}) + "." + encode(payload)
	mac := hmac.New(sha256.New, key.N.Bytes())
	mac.Write([]byte(signed))
	return signed + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func unsigned(payload map[string]any) string {
	return encode(map[string]string{"alg": "none", "typ": "JWT"}) + "." + encode(payload) + "."
}
