// Command delay-proxy relays TCP and delays what clients send by a fixed, known time.
//
// It calibrates the trials: an effect of known size shows whether a study would have detected it. The control treatment
// is the same relay with -delay 0, so that the relay's own cost is in both treatments.
//
// The delay applies to each chunk (the result of one read, up to 256 KiB) from client to target. A request that fits in
// one chunk is delayed exactly once, if it is the only one in flight on its connection. /stats reports the number of
// chunks, to be compared with the number of requests. Pipelined or multiplexed requests (HTTP/2) share delays, and
// large bodies have several.
package main

import (
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"runtime"
	"time"

	"meshtrial/native/internal/serve"
)

const name = "delay-proxy"

// longestDelay limits how long the program's end can take, because a wait is not interrupted.
const longestDelay = 2 * time.Second

func main() { serve.Main(name, run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:0", "`host:port` for clients")
	target := flags.String("target", "", "`host:port` to relay to")
	delay := flags.Duration("delay", 0, "extra `time` for each chunk from client to target, such as 50us; 0 is the control")
	admin := flags.String("admin", "127.0.0.1:0", "`host:port` of /stats and /health")
	if err := serve.Parse(flags, args, out); err != nil {
		return err
	}
	if *delay < 0 || *delay > longestDelay {
		return serve.Usagef("-delay %v is not between 0 and %v", *delay, longestDelay)
	}
	if _, _, err := net.SplitHostPort(*target); err != nil {
		return serve.Usagef("-target %q: give the host:port to relay to", *target)
	}
	// A waiting connection is in a system call and keeps its scheduler slot for a while. With only as many slots as cores,
	// two waits would delay a third connection.
	runtime.GOMAXPROCS(max(32, runtime.GOMAXPROCS(0)))
	listener, err := serve.Listen(*listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	adminListener, err := serve.Listen(*admin)
	if err != nil {
		return err
	}
	defer adminListener.Close()
	if err := serve.Ready(out, name, map[string]net.Listener{"listen": listener, "admin": adminListener}); err != nil {
		return err
	}
	relay := newRelay(*target, *delay)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) { serve.JSON(w, relay.stats()) })
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { serve.JSON(w, map[string]bool{"ok": true}) })
	return serve.All(ctx,
		func(ctx context.Context) error { return relay.serve(ctx, listener) },
		func(ctx context.Context) error { return serve.HTTP(ctx, adminListener, &http.Server{Handler: mux}) })
}
