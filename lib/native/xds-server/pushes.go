package main

import (
	"context"
	"log"
	"time"
)

// pushes delays every change by a known time and keeps their order. Without a delay each is made at once, by its caller.
type pushes struct {
	delay time.Duration
	held  chan held
}

type held struct {
	due  time.Time
	make func() error
}

// mostPending limits delayed changes; further callers wait.
const mostPending = 10_000

func newPushes(delay time.Duration) *pushes {
	return &pushes{delay: delay, held: make(chan held, mostPending)}
}

// make pushes now, or the delay after the change was accepted.
func (p *pushes) make(taken time.Time, push func() error) error {
	if p.delay == 0 {
		return push()
	}
	p.held <- held{taken.Add(p.delay), push}
	return nil
}

// serve makes the delayed changes until the context ends.
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
				log.Printf("a delayed push failed: %v", err)
			}
		}
	}
}
