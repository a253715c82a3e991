// Package wait holds up a goroutine for a known time more exactly than Go's timers do.
package wait

import (
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// spinFor is the last part of a wait, which is spent spinning. Below a millisecond Go's own timers are late by up to
// one, because their poller counts in milliseconds. The kernel's nanosleep without timer slack (50 us by default) was
// seen to wake 5 to 30 us late. A longer window than that makes nearly every wait exact; at 1000 requests per second
// it costs 5 % of a core.
const spinFor = 50 * time.Microsecond

// For returns as closely as possible d after start, and returns how long it really took.
func For(start time.Time, d time.Duration) time.Duration {
	if d > spinFor {
		sleepUntil(start, d-spinFor)
	}
	for {
		if passed := time.Since(start); passed >= d {
			return passed
		}
	}
}

// sleepUntil blocks the calling thread in the kernel until d after start.
func sleepUntil(start time.Time, d time.Duration) {
	runtime.LockOSThread() // the slack belongs to a thread
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // if refused, waits are less exact, which /stats shows
	for {
		left := d - time.Since(start)
		if left <= 0 {
			return
		}
		request := unix.NsecToTimespec(left.Nanoseconds())
		// Go's scheduler interrupts threads by signals, which end a nanosleep early.
		if err := unix.Nanosleep(&request, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return // spinning covers the rest
		}
	}
}
