// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

// report shows the progress of a step: a line at the start, one every few seconds, and one at
// the end. As a writer, it takes what the step's programs have to say, and keeps the last lines for
// an error message.
type report struct {
	out  io.Writer
	name string

	mu      sync.Mutex
	began   time.Time
	unit    string // what a line of output stands for, when that is worth telling
	lines   int
	partial []byte
	last    [][]byte
	stop    chan struct{}
	stopped sync.WaitGroup
}

// kept is how many lines of output an error message shows.
const kept = 25

func newReport(out io.Writer, name string) *report {
	return &report{out: out, name: name, stop: make(chan struct{})}
}

// count says what each line of output stands for, such as "packages".
func (r *report) count(unit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unit = unit
}

// Write takes output.
func (r *report) Write(content []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.partial = append(r.partial, content...)
	for {
		line, rest, found := bytes.Cut(r.partial, []byte("\n"))
		if !found {
			return len(content), nil
		}
		r.partial = rest
		if !bytes.HasPrefix(line, []byte("go: ")) { // as it downloads modules
			r.lines++
		}
		r.last = append(r.last, bytes.Clone(line))
		if len(r.last) > kept {
			r.last = r.last[1:]
		}
	}
}

func (r *report) start() {
	r.began = time.Now()
	fmt.Fprintf(r.out, "%s ...\n", r.name)
	r.stopped.Go(func() {
		ticker := time.NewTicker(reportInterval)
		defer ticker.Stop()
		for {
			select {
			case <-r.stop:
				return
			case <-ticker.C:
				r.say("still at it,")
			}
		}
	})
}

func (r *report) end(err error) {
	close(r.stop)
	r.stopped.Wait()
	if err != nil {
		r.say("failed")
		return
	}
	r.say("done")
}

func (r *report) say(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := ""
	if r.unit != "" && r.lines > 0 {
		count = fmt.Sprintf(" %d %s", r.lines, r.unit)
	}
	fmt.Fprintf(r.out, "%s: %s%s in %v\n", r.name, what, count, time.Since(r.began).Round(time.Second))
}

// tail returns the last lines of output.
func (r *report) tail() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Join(append(r.last, r.partial), []byte("\n"))
}
