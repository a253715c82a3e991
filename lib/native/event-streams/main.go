// Command event-streams holds long-lived streams of events: server-sent events over HTTP/1.1, or gRPC server streams.
//
// `serve` is the application, which sends the events. `load` is the load generator: it opens the streams, receives
// their events, and writes the result and the access log in fortio's formats, with one line for each event.
package main

import (
	"context"
	"flag"
	"io"

	"meshtrial/native/internal/serve"
)

const name = "event-streams"

func main() { serve.Main(name, run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 && args[0] == "serve" {
		return runServer(ctx, args[1:], out)
	}
	if len(args) > 0 && args[0] == "load" {
		return runLoad(ctx, args[1:], out)
	}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	if err := serve.Parse(flags, args, out, "fortio.org/fortio", "google.golang.org/grpc"); err != nil {
		return err
	}
	return serve.Usagef("give serve or load, and then its flags")
}
