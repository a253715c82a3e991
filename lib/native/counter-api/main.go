// Command counter-api is the small JSON application of the trials: a counter over HTTP/1.1 and h2c.
//
// POST /counter increments it, GET /counter reads it. An application should be cheap and steady, so that a study
// measures the path to it. -work makes it use a known amount of CPU per request.
package main

import (
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"time"

	"meshtrial/native/internal/serve"
)

const name = "counter-api"

func main() { serve.Main(name, run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	address := flags.String("listen", "127.0.0.1:8080", "`host:port` to serve")
	work := flags.Duration("work", 0, "CPU `time` to burn in every request, such as 200us")
	noDelay := flags.Bool("nodelay", true, "set TCP_NODELAY on accepted connections (false leaves Nagle's algorithm on)")
	if err := serve.Parse(flags, args, out); err != nil {
		return err
	}
	if *work < 0 {
		return serve.Usagef("-work %v is negative", *work)
	}
	listener, err := serve.Listen(*address)
	if err != nil {
		return err
	}
	if err := serve.Ready(out, name, map[string]net.Listener{"http": listener}); err != nil {
		return err
	}
	if !*noDelay {
		listener = nagle{listener}
	}
	return serve.HTTP(ctx, listener, newServer(*work))
}

// newServer serves HTTP/1.1 and cleartext HTTP/2 with prior knowledge, which is how Envoy speaks h2 without TLS.
func newServer(work time.Duration) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{Handler: newCounter(work).handler(), Protocols: protocols}
}

// nagle switches TCP_NODELAY off, which Go switches on by default, to measure its effect.
type nagle struct{ net.Listener }

func (l nagle) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return connection, connection.(*net.TCPConn).SetNoDelay(false)
}
