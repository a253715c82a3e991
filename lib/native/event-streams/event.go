package main

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// method is the gRPC method of a stream. Its request is a StringValue with the same query as that of an HTTP request,
// and its events are BytesValues.
const method = "/meshtrial.Streams/Events"

// Limits of one stream, so that a mistyped request cannot occupy the server.
const (
	mostEvents = 100_000_000
	mostSize   = 1 << 20
	mostRate   = 1_000_000
)

// request is what a client asks of one stream. The empty request is one event at once.
type request struct {
	rate   float64 // events per second
	events int64   // after which the server ends the stream
	size   int     // bytes of padding in each event
}

func parseRequest(query string) (request, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return request{}, err
	}
	asked := request{rate: 1, events: 1}
	if text := values.Get("rate"); text != "" {
		if asked.rate, err = strconv.ParseFloat(text, 64); err != nil || !(asked.rate > 0 && asked.rate <= mostRate) {
			return request{}, fmt.Errorf("rate=%s: must be above 0 and at most %d events per second", text, mostRate)
		}
	}
	if text := values.Get("events"); text != "" {
		if asked.events, err = strconv.ParseInt(text, 10, 64); err != nil || asked.events < 1 || asked.events > mostEvents {
			return request{}, fmt.Errorf("events=%s: must be 1 to %d", text, mostEvents)
		}
	}
	if text := values.Get("size"); text != "" {
		if asked.size, err = strconv.Atoi(text); err != nil || asked.size < 0 || asked.size > mostSize {
			return request{}, fmt.Errorf("size=%s: must be 0 to %d bytes", text, mostSize)
		}
	}
	return asked, nil
}

func (r request) query() string {
	return url.Values{
		"rate":   {strconv.FormatFloat(r.rate, 'g', -1, 64)},
		"events": {strconv.FormatInt(r.events, 10)},
		"size":   {strconv.Itoa(r.size)},
	}.Encode()
}

// offset is when an event is due after the first: as in fortio's schedule of one connection, the waits are stretched so
// that the last of n events is due n intervals after the first.
func (r request) offset(number int64) time.Duration {
	due := float64(number)
	if r.events > 1 {
		due += due / float64(r.events-1)
	}
	return time.Duration(due / r.rate * 1e9)
}

// appendEvent writes an event: its number from 0, the time at which it was sent in Unix nanoseconds, and padding.
func appendEvent(text []byte, number int64, sent time.Time, padding []byte) []byte {
	text = strconv.AppendInt(text, number, 10)
	text = append(text, ' ')
	text = strconv.AppendInt(text, sent.UnixNano(), 10)
	if len(padding) > 0 {
		text = append(append(text, ' '), padding...)
	}
	return text
}

func parseEvent(text []byte) (number int64, sent time.Time, err error) {
	first, rest, _ := bytes.Cut(text, []byte{' '})
	second, _, _ := bytes.Cut(rest, []byte{' '})
	number, err = strconv.ParseInt(string(first), 10, 64)
	if err == nil {
		var nanoseconds int64
		nanoseconds, err = strconv.ParseInt(string(second), 10, 64)
		sent = time.Unix(0, nanoseconds)
	}
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("this is no event: %.40q", text)
	}
	return number, sent, nil
}
