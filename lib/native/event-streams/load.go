package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fortio.org/fortio/periodic"
	"fortio.org/fortio/stats"

	"meshtrial/native/internal/serve"
)

var (
	errSilent      = errors.New("time-out: the stream was silent")
	errInterrupted = errors.New("interrupted before the last event")
)

// result is fortio's result of a run, in which a thread is a stream and a call is an event. Its latency is the time from
// the event's time stamp to its arrival. Events that never came are failed calls.
type result struct {
	periodic.RunnerResults
	URL         string
	RetCodes    map[string]int64
	SocketCount int64
	FirstEvents []float64 // seconds from the opening of a stream, before its connection, to its first event
}

// load is a number of streams that are opened one after another within one interval between two events of a stream.
type load struct {
	asked   request
	streams int
	timeout time.Duration // for which an event may be overdue
	open    opener
	log     periodic.AccessLogger
	start   time.Time
}

// received is what one stream brought.
type received struct {
	all, failed *stats.Histogram
	codes       map[string]int64
	first       float64 // seconds; 0 if no event came
}

func runLoad(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet(name+" load", flag.ContinueOnError)
	rate := flags.Float64("qps", 0, "events per second over all streams")
	streams := flags.Int("c", 1, "`number` of streams, each over a connection of its own")
	duration := flags.Duration("t", 10*time.Second, "`time` in which all events are due")
	timeout := flags.Duration("timeout", 5*time.Second, "`time` for which an event may be overdue")
	resolution := flags.Float64("r", 1e-5, "`seconds` of the histogram's finest bucket")
	size := flags.Int("size", 0, "`bytes` of padding in each event")
	isGRPC := flags.Bool("grpc", false, "gRPC streams from host:port instead of server-sent events from a URL")
	labels := flags.String("labels", "", "`text` that is copied into the result")
	jsonFile := flags.String("json", "", "`file` of the result")
	logFile := flags.String("access-log-file", "", "`file` of the access log, one line for each event")
	logFormat := flags.String("access-log-format", "json", "`format` of the access log, json or influx")
	header := http.Header{}
	flags.Func("H", "`name:value` of a request header", func(text string) error {
		key, value, found := strings.Cut(text, ":")
		if !found {
			return fmt.Errorf("%q has no colon", text)
		}
		header.Add(key, strings.TrimSpace(value))
		return nil
	})
	target := ""
	if last := len(args) - 1; last >= 0 && !strings.HasPrefix(args[last], "-") {
		target, args = args[last], args[:last]
	}
	if err := serve.Parse(flags, args, out); err != nil {
		return err
	}
	l := load{streams: *streams, timeout: *timeout}
	// fortio plans in the same way: in whole calls per thread. A stream has two events or more, so that it has a gap.
	events := max(2, int64(*rate*duration.Seconds())/int64(max(1, *streams)))
	l.asked = request{rate: *rate / float64(*streams), events: events, size: *size}
	switch {
	case target == "" || *jsonFile == "" || *logFile == "":
		return serve.Usagef("give -json, -access-log-file, and last the target")
	case *streams < 1 || *rate <= 0 || *resolution <= 0 || *timeout <= 0:
		return serve.Usagef("-c %d, -qps %g, -r %g and -timeout %v must be above 0", *streams, *rate, *resolution, *timeout)
	}
	if _, err := parseRequest(l.asked.query()); err != nil {
		return serve.Usagef("%w", err)
	}
	var err error
	if l.log, err = periodic.NewFileAccessLogger(*logFile, *logFormat); err != nil {
		return err
	}
	var sockets atomic.Int64
	kind := "SSE stream"
	if *isGRPC {
		kind, l.open = "GRPC stream", grpcOpener(target, header, &sockets)
	} else {
		l.open = sseOpener(target, header, &sockets)
	}
	l.start = time.Now()
	found := l.run(ctx, *resolution)
	took := time.Since(l.start)
	if ctx.Err() != nil {
		return errInterrupted
	}
	all, failed := stats.NewHistogram(0, *resolution), stats.NewHistogram(0, *resolution)
	written := result{URL: target, RetCodes: map[string]int64{}, SocketCount: sockets.Load()}
	for _, stream := range found {
		all.Transfer(stream.all)
		failed.Transfer(stream.failed)
		for code, number := range stream.codes {
			written.RetCodes[code] += number
		}
		if stream.first > 0 {
			written.FirstEvents = append(written.FirstEvents, stream.first)
		}
	}
	written.RunnerResults = periodic.RunnerResults{
		RunType:                 kind,
		Labels:                  *labels,
		StartTime:               l.start,
		RequestedQPS:            strconv.FormatFloat(*rate, 'g', 9, 64),
		RequestedDuration:       duration.String(),
		ActualQPS:               float64(all.Count) / took.Seconds(),
		ActualDuration:          took,
		NumThreads:              *streams,
		Version:                 serve.Version,
		DurationHistogram:       all.Export(),
		ErrorsDurationHistogram: failed.Export(),
		Uniform:                 true,
		AccessLoggerInfo:        l.log.Info(),
	}
	text, err := json.MarshalIndent(written, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*jsonFile, append(text, '\n'), 0o644)
}

// run holds all streams until their last events, and returns what each brought.
func (l load) run(ctx context.Context, resolution float64) []received {
	found := make([]received, l.streams)
	var group sync.WaitGroup
	for thread := range l.streams {
		group.Go(func() {
			stagger := float64(thread) / (l.asked.rate * float64(l.streams))
			opening := l.start.Add(time.Duration(stagger * 1e9))
			select {
			case <-time.After(time.Until(opening)):
			case <-ctx.Done():
			}
			one := received{stats.NewHistogram(0, resolution), stats.NewHistogram(0, resolution), map[string]int64{}, 0}
			l.hold(ctx, thread, &one)
			found[thread] = one
		})
	}
	group.Wait()
	return found
}

// hold opens one stream and receives its events. When the stream breaks, is silent for too long, or brings another
// event than the next, it is given up, and all events that are still outstanding have failed.
func (l load) hold(ctx context.Context, thread int, found *received) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	opened := time.Now()
	patience := l.timeout + time.Duration(1e9/l.asked.rate)
	silence := time.AfterFunc(patience, func() { cancel(errSilent) })
	defer silence.Stop()
	first := opened
	next, code, err := l.open(ctx, l.asked)
	for number := range l.asked.events {
		var sent, arrived time.Time
		if err == nil {
			sent, arrived, err = receive(next, number)
		}
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			l.fail(ctx, thread, number, first, err, found)
			return
		}
		silence.Reset(patience)
		latency := arrived.Sub(sent).Seconds()
		if number == 0 {
			first, found.first = sent, arrived.Sub(opened).Seconds()
		}
		found.all.Record(latency)
		found.codes[code]++
		l.log.Report(ctx, periodic.ThreadID(thread), number, sent, latency, true, code)
	}
	_, _ = next() // the server's end of the stream, without which a proxy would count it as broken
}

// receive waits for the next event and returns when it was sent and when it arrived.
func receive(next func() ([]byte, error), number int64) (sent, arrived time.Time, err error) {
	text, err := next()
	arrived = time.Now()
	if err != nil {
		return sent, arrived, err
	}
	got, sent, err := parseEvent(text)
	switch {
	case err != nil:
		return sent, arrived, err
	case got != number:
		return sent, arrived, fmt.Errorf("out of order: event %d came instead of %d", got, number)
	case arrived.Before(sent):
		return sent, arrived, fmt.Errorf("the clocks differ: event %d arrived %v before it was sent", got, sent.Sub(arrived))
	}
	return sent, arrived, nil
}

// fail records all events from this number on as failed: those that were due by now with the time since then.
func (l load) fail(ctx context.Context, thread int, from int64, first time.Time, reason error, found *received) {
	now := time.Now()
	for number := from; number < l.asked.events && !errors.Is(reason, context.Canceled); number++ {
		due := first.Add(l.asked.offset(number))
		if due.After(now) {
			due = now
		}
		latency := now.Sub(due).Seconds()
		found.all.Record(latency)
		found.failed.Record(latency)
		found.codes[reason.Error()]++
		l.log.Report(ctx, periodic.ThreadID(thread), number, due, latency, false, reason.Error())
	}
}
