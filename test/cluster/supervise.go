// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// restartDelay is that of a service manager, which doesn't start a program that has just ended at
// once.
const restartDelay = 100 * time.Millisecond

// Supervisor starts a program again whenever it ends, as a service manager does.
type Supervisor struct {
	component *Component
	restarts  atomic.Int64
	stop      context.CancelFunc
	ended     chan struct{}
	err       error // valid when ended is closed
}

// Supervise starts the program again whenever it ends, until Stop is called. Meanwhile no other
// code may start it or wait for its end; Signal is the way to kill it.
func (c *Component) Supervise() *Supervisor {
	ctx, stop := context.WithCancel(context.Background())
	s := &Supervisor{component: c, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.err = s.run(ctx)
	}()
	return s
}

func (s *Supervisor) run(ctx context.Context) error {
	for {
		s.component.mu.Lock()
		process := s.component.process
		s.component.mu.Unlock()
		if process == nil {
			return fmt.Errorf("supervise %s: it does not run", s.component.Name)
		}
		select {
		case <-process.Done():
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(restartDelay):
		case <-ctx.Done():
			return nil
		}
		if err := s.component.Start(); err != nil {
			return errors.Join(errors.New("supervise "+s.component.Name), err)
		}
		s.restarts.Add(1)
	}
}

// Restarts is how often the program was started again.
func (s *Supervisor) Restarts() int { return int(s.restarts.Load()) }

// Stop ends the supervision; the program runs on, if it does.
func (s *Supervisor) Stop() error {
	s.stop()
	<-s.ended
	return s.err
}
