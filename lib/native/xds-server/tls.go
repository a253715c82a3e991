package main

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// commonTLS proves its own identity and accepts only peers whose certificate has one of the SPIFFE names.
func commonTLS(own role, peers []string) *tlsv3.CommonTlsContext {
	file := func(name string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: name}}
	}
	var names []*tlsv3.SubjectAltNameMatcher
	for _, peer := range peers {
		names = append(names, &tlsv3.SubjectAltNameMatcher{
			SanType: tlsv3.SubjectAltNameMatcher_URI,
			Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: peer}},
		})
	}
	return &tlsv3.CommonTlsContext{
		// Minimum and maximum: a client's default maximum is 1.2.
		TlsParams: &tlsv3.TlsParameters{
			TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_3, TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
		},
		AlpnProtocols:   []string{"h2"},
		TlsCertificates: []*tlsv3.TlsCertificate{{CertificateChain: file(own.Certificate), PrivateKey: file(own.Key)}},
		ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: file(own.Authority), MatchTypedSubjectAltNames: names,
		}},
	}
}

func upstreamTLS(own role, peer string) *corev3.TransportSocket {
	return transportSocket(&tlsv3.UpstreamTlsContext{CommonTlsContext: commonTLS(own, []string{peer})})
}

func downstreamTLS(own role, peers []string) *corev3.TransportSocket {
	return transportSocket(&tlsv3.DownstreamTlsContext{
		CommonTlsContext: commonTLS(own, peers), RequireClientCertificate: wrapperspb.Bool(true),
	})
}

func transportSocket(context proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(context)},
	}
}
