package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"meshtrial/native/internal/servetest"
)

// start runs the whole program before target and returns its address and its admin address.
func start(t *testing.T, target string, args ...string) (address, admin string, stop func()) {
	t.Helper()
	var ready struct{ Listen, Admin string }
	stop = servetest.Start(t, run, &ready, append([]string{"-target", target}, args...)...)
	return ready.Listen, ready.Admin, stop
}

func statsOf(t *testing.T, admin string) (answer stats) {
	t.Helper()
	servetest.Stats(t, admin, &answer)
	return answer
}

// listen serves every connection with handle.
func listen(t *testing.T, handle func(*net.TCPConn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				handle(connection.(*net.TCPConn))
			}()
		}
	}()
	return listener.Addr().String()
}

func echo(connection *net.TCPConn) { _, _ = io.Copy(connection, connection) }

func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection.(*net.TCPConn)
}

// roundTrip returns the time of one small exchange.
func roundTrip(t *testing.T, connection net.Conn) time.Duration {
	t.Helper()
	buffer := make([]byte, 16)
	start := time.Now()
	if _, err := connection.Write(buffer); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(connection, buffer); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

func TestAddsTheDelayToEveryRoundTrip(t *testing.T) {
	target := listen(t, echo)
	delays := []time.Duration{0, 20, 50, 100, 200, 500}
	connections, admins := make([]net.Conn, len(delays)), make([]string, len(delays))
	shortest := make([]time.Duration, len(delays))
	for i := range delays {
		delays[i] *= time.Microsecond
		address, admin, _ := start(t, target, "-delay", delays[i].String())
		connections[i], admins[i], shortest[i] = dial(t, address), admin, time.Hour
	}
	// Alternate, so that all of them run under the same conditions; the shortest of many is the least disturbed.
	for range 500 {
		for i, connection := range connections {
			shortest[i] = min(shortest[i], roundTrip(t, connection))
		}
	}
	for i, delay := range delays[1:] {
		applied, took := statsOf(t, admins[i+1]).Applied, shortest[i+1]
		if applied.Count != 500 || applied.Min < int64(delay) || applied.Mean < applied.Min || applied.Max < applied.Mean {
			t.Errorf("%v: %+v", delay, applied)
		}
		if took < delay {
			t.Errorf("%v: a round trip took %v", delay, took)
		}
		t.Logf("%v: shortest +%v, applied %+v", delay, took-shortest[0], applied)
		if added := took - shortest[0]; added > delay+300*time.Microsecond {
			t.Errorf("%v: the shortest round trip rose by %v", delay, added)
		}
		// A thread that waits is awake when the delay ends, and so some microseconds faster than one that does not wait.
		// So each delay is compared with the smallest one.
		if more, rose := delay-delays[1], took-shortest[1]; rose < more/2 {
			t.Errorf("%v: %v more than the smallest delay made the shortest round trip %v longer", delay, more, rose)
		}
	}
}

func TestControlAppliesNothing(t *testing.T) {
	address, admin, stop := start(t, listen(t, echo))
	connection := dial(t, address)
	for range 200 {
		roundTrip(t, connection)
	}
	got := statsOf(t, admin)
	if got.Applied.Count != 200 || got.Applied.Mean > 50_000 || got.Delay != 0 || got.BytesUp != 3200 || got.BytesDown != 3200 {
		t.Errorf("%+v", got)
	}
	connection.Close()
	stop()
}

func TestHalfCloseLetsTheAnswerComeBack(t *testing.T) {
	target := listen(t, func(connection *net.TCPConn) {
		text, _ := io.ReadAll(connection) // answers only after the client's end has arrived
		_, _ = connection.Write(bytes.ToUpper(text))
	})
	address, admin, _ := start(t, target, "-delay", "20us")
	connection := dial(t, address)
	_, _ = connection.Write([]byte("whole"))
	_ = connection.CloseWrite()
	text, err := io.ReadAll(connection)
	if string(text) != "WHOLE" || err != nil {
		t.Errorf("%q %v", text, err)
	}
	if resets := statsOf(t, admin).Resets; resets != 0 {
		t.Errorf("%d resets", resets)
	}
}

func TestResetIsPassedOn(t *testing.T) {
	target := listen(t, func(connection *net.TCPConn) {
		_, _ = connection.Read(make([]byte, 1))
		_ = connection.SetLinger(0)
	})
	address, admin, _ := start(t, target)
	connection := dial(t, address)
	_, _ = connection.Write([]byte("x"))
	if _, err := io.ReadAll(connection); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v, want a reset", err)
	}
	eventually(t, func() bool { got := statsOf(t, admin); return got.Resets == 1 && got.Open == 0 })
}

func TestUnreachableTargetResetsTheClient(t *testing.T) {
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	target := listener.Addr().String()
	listener.Close()
	address, admin, _ := start(t, target)
	connection, err := net.Dial("tcp", address)
	if err == nil { // else the reset was quicker still
		defer connection.Close()
		_, err = io.ReadAll(connection)
	}
	if err == nil {
		t.Error("the client saw a clean end")
	}
	eventually(t, func() bool { return statsOf(t, admin).DialErrors == 1 })
}

func TestMuchDataArrivesWholeThroughASlowReader(t *testing.T) {
	const size = 16 << 20
	received := make(chan int64, 1)
	target := listen(t, func(connection *net.TCPConn) {
		time.Sleep(100 * time.Millisecond) // until then the relay must hold the client back, not its data
		n, _ := io.Copy(io.Discard, connection)
		received <- n
	})
	address, admin, _ := start(t, target, "-delay", "20us")
	connection := dial(t, address)
	_, err := io.Copy(connection, io.LimitReader(zeros{}, size))
	if err != nil {
		t.Fatal(err)
	}
	_ = connection.CloseWrite()
	if n := <-received; n != size {
		t.Errorf("%d bytes arrived", n)
	}
	if got := statsOf(t, admin); got.BytesUp != size {
		t.Errorf("%d bytes counted", got.BytesUp)
	}
}

func TestEndCutsConnectionsThatStay(t *testing.T) {
	address, _, stop := start(t, listen(t, echo))
	connection := dial(t, address)
	roundTrip(t, connection)
	begin := time.Now()
	stop()
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the end took %v", took)
	}
	if _, err := connection.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
}

func TestBadUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"-target": {}, "between": {"-target", "127.0.0.1:1", "-delay", "3s"}, "no host": {"-target", "127.0.0.1:1", "-listen", ":0"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestExcessQuantile(t *testing.T) {
	var a applied
	for range 99 {
		a.add(100, 101) // 1 ns late: bucket [1, 2)
	}
	a.add(100, 1124) // 1024 ns late: bucket [1024, 2048)
	got := a.summary()
	want := summary{Count: 100, Mean: (99*101 + 1124) / 100, Min: 101, Max: 1124, ExcessP50: 2, ExcessP99: 2048}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for range 200 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("it never came true")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// asWritten calls itself with what it is given.
type asWritten func(chunk []byte)

func (w asWritten) Write(chunk []byte) (int, error) { w(chunk); return len(chunk), nil }

// A trial reads /stats once it has an answer: the request must be counted by then.
func TestWhatIsPassedOnIsCountedBefore(t *testing.T) {
	r := newRelay("unused", time.Microsecond)
	var chunks, up, down int64
	if err := r.up(asWritten(func(chunk []byte) {
		chunks++
		up += int64(len(chunk))
		if now := r.stats(); now.Applied.Count != chunks || now.BytesUp != up {
			t.Errorf("chunk %d: %+v", chunks, now)
		}
	}), strings.NewReader("a request")); err != nil || chunks == 0 {
		t.Fatal(chunks, err)
	}
	if err := r.down(asWritten(func(chunk []byte) {
		down += int64(len(chunk))
		if now := r.stats(); now.BytesDown != down {
			t.Errorf("%d bytes down: %+v", down, now)
		}
	}), strings.NewReader("an answer")); err != nil || down == 0 {
		t.Fatal(down, err)
	}
}
