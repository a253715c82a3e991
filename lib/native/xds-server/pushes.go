package main

import (
	"context"
	"log"
	"time"
)

// pushes holds every change back for a known time, in the order in which they came. Without a delay each is made at once,
// by whoever asks for it.
type pushes struct {
	delay time.Duration
	held  chan held
}

type held struct {
	due  time.Time
	make func() error
}

// most that are held at once; whoever asks for more waits.
const mostHeld = 10_000

func newPushes(delay time.Duration) *pushes {
	return &pushes{delay: delay, held: make(chan held, mostHeld)}
}

// make pushes now, or the delay after the change was taken.
func (p *pushes) make(taken time.Time, push func() error) error {
	if p.delay == 0 {
		return push()
	}
	p.held <- held{taken.Add(p.delay), push}
	return nil
}

// serve makes those that are held, until the context ends.
func (p *pushes) serve(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case next := <-p.held:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(time.Until(next.due)):
			}
			if err := next.make(); err != nil {
				log.Printf("a push that was held back: %v", err)
			}
		}
	}
}
