// Package serve has what the programs of this module share: flags with -version, listening only on explicit addresses,
// one line that reports readiness, a graceful end on SIGTERM and SIGINT, and exit codes.
package serve

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

// Version is the version of all programs in this module.
const Version = "0.1.0"

// Grace is how long a program waits for requests in flight after it was asked to end.
const Grace = 3 * time.Second

// errDone reports that the flags asked only for output (-version, -help), which has been printed.
var errDone = errors.New("done")

// usageError is a mistake in the program's flags: exit code 2.
type usageError struct{ error }

// Usagef returns an error that ends the program with exit code 2.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Main runs a program until it ends, or until SIGTERM or SIGINT, and exits. A second signal ends it at once.
func Main(name string, run func(ctx context.Context, args []string, out io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.Stdout)
	var usage usageError
	switch {
	case err == nil, errors.Is(err, errDone):
		os.Exit(0)
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "%s: %v (see %s -help)\n", name, err, name)
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Parse reads args into flags and refuses further arguments. With -version it prints the versions of the program and of
// the given linked modules, which influence what is measured.
func Parse(flags *flag.FlagSet, args []string, out io.Writer, modules ...string) error {
	version := flags.Bool("version", false, "print the version and exit")
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(out, "usage of %s:\n", flags.Name())
		flags.SetOutput(out)
		flags.PrintDefaults()
		return errDone
	case err != nil:
		return usageError{err}
	case flags.NArg() > 0:
		return Usagef("unexpected argument %q", flags.Arg(0))
	case *version:
		fmt.Fprintln(out, versionLine(flags.Name(), modules))
		return errDone
	}
	return nil
}

func versionLine(name string, modules []string) string {
	line := name + " " + Version
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return line
	}
	for _, module := range modules {
		for _, dep := range info.Deps {
			if dep.Path == module {
				line += " " + module[strings.LastIndexByte(module, '/')+1:] + " " + dep.Version
			}
		}
	}
	return line + " " + info.GoVersion
}

// Listen opens a TCP listener at host:port. An empty host is refused, because it would mean every interface.
func Listen(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, Usagef("address %q: %w", address, err)
	}
	if host == "" {
		return nil, Usagef("address %q has no host: give 127.0.0.1%s, or 0.0.0.0%s to mean every interface", address, address, address)
	}
	return net.Listen("tcp", address)
}

// Ready prints one line with the addresses on which the program listens, which a caller needs for port 0.
func Ready(out io.Writer, name string, listeners map[string]net.Listener) error {
	line := map[string]any{"ready": name, "pid": os.Getpid()}
	for role, listener := range listeners {
		line[role] = listener.Addr().String()
	}
	return json.NewEncoder(out).Encode(line)
}

// HTTP serves handler on listener until ctx ends, then lets requests in flight finish for Grace.
func HTTP(ctx context.Context, listener net.Listener, server *http.Server) error {
	server.ReadHeaderTimeout = 10 * time.Second
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), Grace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return server.Close() // idle keep-alive clients are not a failure
	}
	return nil
}

// JSON answers an admin request with value.
func JSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // fails only when the client has gone
}

// All runs the tasks until the first of them ends or ctx does, ends the others, and returns the first error.
func All(ctx context.Context, tasks ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(tasks))
	for _, task := range tasks {
		go func() { ended <- task(ctx) }()
	}
	var first error
	for range tasks {
		if err := <-ended; err != nil && first == nil {
			first = err
		}
		cancel()
	}
	return first
}
