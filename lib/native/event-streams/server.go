package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"meshtrial/native/internal/serve"
	"meshtrial/native/internal/wait"
)

// longestDelay limits how long the program's end can take, because a delay is not interrupted.
const longestDelay = 2 * time.Second

func runServer(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet(name+" serve", flag.ContinueOnError)
	address := flags.String("listen", "127.0.0.1:8080", "`host:port` of server-sent events, at every path")
	grpcAddress := flags.String("grpc", "127.0.0.1:0", "`host:port` of gRPC streams")
	delay := flags.Duration("delay", 0, "`time` for which events are held back after their time stamp; 0 delays none")
	every := flags.Int64("delay-every", 1, "delay every event whose number, from 1, is a multiple of this `number`")
	if err := serve.Parse(flags, args, out); err != nil {
		return err
	}
	if *delay < 0 || *delay > longestDelay || *every < 1 {
		return serve.Usagef("-delay %v must be 0 to %v, and -delay-every %d at least 1", *delay, longestDelay, *every)
	}
	listener, err := serve.Listen(*address)
	if err != nil {
		return err
	}
	defer listener.Close()
	grpcListener, err := serve.Listen(*grpcAddress)
	if err != nil {
		return err
	}
	defer grpcListener.Close()
	if err := serve.Ready(out, name, map[string]net.Listener{"http": listener, "grpc": grpcListener}); err != nil {
		return err
	}
	return sender{*delay, *every}.serve(ctx, listener, grpcListener)
}

// sender sends the events of all streams.
type sender struct {
	delay time.Duration
	every int64
}

// serve sends events until ctx ends, which also ends the streams.
func (s sender) serve(ctx context.Context, listener, grpcListener net.Listener) error {
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "meshtrial.Streams",
		HandlerType: (*any)(nil),
		Streams:     []grpc.StreamDesc{{StreamName: "Events", ServerStreams: true, Handler: s.grpcHandler(ctx)}},
	}, s)
	return serve.All(ctx,
		func(ctx context.Context) error {
			base := func(net.Listener) context.Context { return ctx }
			return serve.HTTP(ctx, listener, &http.Server{Handler: http.HandlerFunc(s.serveHTTP), BaseContext: base})
		},
		func(ctx context.Context) error {
			stop := context.AfterFunc(ctx, func() { serve.StopGRPC(server) })
			defer stop()
			return server.Serve(grpcListener)
		})
}

func (s sender) serveHTTP(w http.ResponseWriter, r *http.Request) {
	asked, err := parseRequest(r.URL.RawQuery)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	controller := http.NewResponseController(w)
	var text []byte
	// An error means that the client has gone.
	_ = s.send(r.Context(), asked, func(number int64, event []byte) error {
		text = strconv.AppendInt(append(text[:0], "id: "...), number, 10)
		text = append(append(append(text, "\ndata: "...), event...), "\n\n"...)
		if _, err := w.Write(text); err != nil {
			return err
		}
		return controller.Flush()
	})
}

func (s sender) grpcHandler(ctx context.Context) grpc.StreamHandler {
	return func(_ any, stream grpc.ServerStream) error {
		both, cancel := context.WithCancel(stream.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		var message wrapperspb.StringValue
		if err := stream.RecvMsg(&message); err != nil {
			return err
		}
		asked, err := parseRequest(message.GetValue())
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		return s.send(both, asked, func(_ int64, event []byte) error { return stream.SendMsg(wrapperspb.Bytes(event)) })
	}
}

// send writes the events of one stream when they are due. An event that fell due while write was still blocked by the
// one before has the time stamp at which it was due: a stream that does not take its events must not make them young.
func (s sender) send(ctx context.Context, asked request, write func(number int64, event []byte) error) error {
	padding := bytes.Repeat([]byte{'m'}, asked.size)
	start := time.Now()
	free := start
	timer := time.NewTimer(0)
	defer timer.Stop()
	var event []byte
	for number := range asked.events {
		due := start.Add(asked.offset(number))
		timer.Reset(time.Until(due))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		sent := time.Now()
		if free.After(due) {
			sent = due
		}
		if s.delay > 0 && (number+1)%s.every == 0 {
			wait.For(time.Now(), s.delay)
		}
		event = appendEvent(event[:0], number, sent, padding)
		if err := write(number, event); err != nil {
			return err
		}
		free = time.Now()
	}
	return nil
}
