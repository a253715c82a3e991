# The default policy: a GET or POST with a valid JWT is allowed, everything else is denied.
#
# The input document is that of OPA's own Envoy plugin, so the same file runs in the official
# openpolicyagent/opa:*-envoy image (with path meshtrial/allow). Data: {"jwks": {"keys": [...]}, "issuer": "...",
# "audience": "..."}.
package meshtrial

default allow := false

allow if {
	request.method in {"GET", "POST"}
	claims.exp # decode_verify checks exp only if there is one
}

request := input.attributes.request.http

# Undefined for a token that is malformed, expired, forged or meant for another audience.
claims := payload if {
	startswith(request.headers.authorization, "Bearer ")
	token := substring(request.headers.authorization, 7, -1)
	[valid, _, payload] := io.jwt.decode_verify(token, {
		"cert": json.marshal(data.jwks),
		"alg": "RS256",
		"iss": data.issuer,
		"aud": data.audience,
	})
	valid
}
