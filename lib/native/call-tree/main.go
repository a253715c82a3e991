// Command call-tree is one or several services of a system: each has an address of its own and answers after it has
// called its callees, in sequence or in parallel.
//
// A study measures the path between the services, so that each does as little itself as possible.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"net"
	"os"

	"meshtrial/native/internal/serve"
)

const name = "call-tree"

func main() { serve.Main(name, run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	path := flags.String("services", "", "JSON `file` of the services: name, listen, steps, afterwards")
	if err := serve.Parse(flags, args, out); err != nil {
		return err
	}
	services, err := read(*path)
	if err != nil {
		return err
	}
	listeners := make(map[string]net.Listener, len(services))
	tasks := make([]func(context.Context) error, 0, len(services))
	for _, service := range services {
		listener, err := serve.Listen(service.Listen)
		if err != nil {
			return err
		}
		listeners[service.Name] = listener
		tasks = append(tasks, func(ctx context.Context) error { return service.serve(ctx, listener) })
	}
	if err := serve.Ready(out, name, listeners); err != nil {
		return err
	}
	return serve.All(ctx, tasks...)
}

// read returns the services of a file, checked.
func read(path string) ([]*service, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, serve.Usagef("-services: %w", err)
	}
	var services []*service
	if err := json.Unmarshal(text, &services); err != nil {
		return nil, serve.Usagef("-services %s: %w", path, err)
	}
	if len(services) == 0 {
		return nil, serve.Usagef("-services %s: has no service", path)
	}
	names := map[string]bool{}
	for _, service := range services {
		if service.Name == "" || names[service.Name] {
			return nil, serve.Usagef("-services %s: the name %q is empty or given twice", path, service.Name)
		}
		names[service.Name] = true
		if err := service.check(); err != nil {
			return nil, serve.Usagef("-services %s: %s: %w", path, service.Name, err)
		}
	}
	return services, nil
}
