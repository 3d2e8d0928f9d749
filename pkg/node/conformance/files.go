// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
)

// Files tests a device plugin, a scheduler plugin, or the pair that belongs together. A file may
// hold both. The error says that the files are no such pair, or is ctx's, and then also says if a
// device may still be broken.
func Files(ctx context.Context, files []string, options Options) (*Report, error) {
	run := &run{ctx: ctx, options: options, report: &Report{}, passed: needs{}}
	fileOf := map[string]string{} // file by entry point
	for _, file := range files {
		symbols, err := pluginload.Entries(file)
		if err != nil {
			run.reportRefused(file, kindUnknown, err)
			continue
		}
		for _, symbol := range symbols {
			if other, taken := fileOf[symbol]; taken {
				return nil, fmt.Errorf("%q and %q both export %s: test one pair of plugins at a time", other,
					file, symbol)
			}
			fileOf[symbol] = file
		}
	}
	var devices *session
	if file, ok := fileOf[device.CreateSymbol]; ok {
		devices = run.session(file, device.CreateSymbol)
		all(run, devices, kindDevice, deviceChecks())
	}
	if file, ok := fileOf[devicescheduler.CreateSymbol]; ok {
		all(run, run.session(file, devicescheduler.CreateSymbol), kindScheduler, schedulerChecks())
		if devices != nil {
			all(run, devices, kindPair, pairChecks())
		}
	}
	if err := ctx.Err(); err != nil {
		return run.report, errors.Join(err, run.unrepaired)
	}
	return run.report, nil
}

// run is one test of some files.
type run struct {
	ctx     context.Context
	options Options
	report  *Report
	passed  needs    // by kind and check
	node    *node    // what the device plugin reports
	placed  []placed // what the scheduler plugin allocated

	unrepaired error // why a device may still be broken
}

// loads is the check before all others.
const (
	loads      = "loads"
	aboutLoads = "The hosts open the file, and find an entry point of the right type and version."
)

// reportRefused reports a file that cannot be opened.
func (r *run) reportRefused(file, kind string, err error) {
	why := pluginload.Explain(err)
	result := Result{
		Plugin: file, Kind: kind, Check: loads, About: aboutLoads, Status: Failed, Reason: why.Cause, Fix: why.Next,
	}
	switch {
	case why.Hung:
		result.Fix, result.Stack = fixHang, stuckIn(why.Trace)
	case why.Trace != "":
		result.Fix, result.Stack = fixPanic, frames(why.Trace)
	}
	r.report.Results = append(r.report.Results, result)
}

// all runs the checks of one kind on a plugin, in their order.
func all[T any](r *run, s *session, kind string, checks []check[T]) {
	defer s.end()
	if kind != kindPair {
		if err := pluginload.Try(r.ctx, s.setup.File, s.setup.Symbol); err != nil {
			r.reportRefused(s.file, kind, err)
		} else {
			r.passed.note(kind+"/"+loads, OK, nil)
			r.report.Results = append(r.report.Results,
				Result{Plugin: s.file, Kind: kind, Check: loads, About: aboutLoads, Status: OK})
		}
	}
	for _, c := range checks {
		if r.ctx.Err() != nil {
			return
		}
		first := needsOf(kind, c.needs)
		o := r.one(s, c.name, first)
		if c.breaks && o.ended {
			o = r.repair(o)
		}
		if c.observe != nil && o.Status == OK {
			s.end()
			o = c.compare(o, r.one(s, c.name, nil))
		}
		if o.Status == Failed {
			s.end() // what is left of it is no matter of the next check
			if o.Fix == "" {
				o.Fix = c.fix
			}
		}
		r.passed.note(kind+"/"+c.name, o.Status, first)
		r.report.Results = append(r.report.Results, Result{
			Plugin: s.file, Kind: kind, Check: c.name, About: c.about, Status: o.Status, Reason: o.Reason, Fix: o.Fix,
			Stack: o.Stack,
		})
	}
}

// needsOf returns the checks that one of this kind needs, with their kinds.
func needsOf(kind string, checks []string) []string {
	if kind == kindPair {
		return checks
	}
	all := []string{kind + "/" + loads}
	for _, need := range checks {
		all = append(all, kind+"/"+need)
	}
	return all
}

// one has the child run one check.
func (r *run) one(s *session, name string, first []string) outcome {
	if o, missing := r.passed.missing(first); missing {
		return o
	}
	s.setup.Node = r.node
	o := s.query(r.ctx, question{Check: name, Placed: r.placed})
	if o.Node != nil {
		r.node = o.Node
	}
	if o.Placed != nil {
		r.placed = o.Placed
	}
	return o
}

// repair repairs the device that a check has broken whose process has ended.
func (r *run) repair(o outcome) outcome {
	if r.options.Break == "" || r.options.Repair == "" {
		return o
	}
	if r.unrepaired = r.options.repair(); r.unrepaired != nil {
		o.Status, o.Reason = Failed, fmt.Sprintf("%s; %v", o.Reason, r.unrepaired)
	}
	return o
}

// session has a child process run checks on a file, another one after each that ended.
type session struct {
	file  string // as it was given
	setup setup
	child *pluginload.Child
	stop  context.CancelFunc // ends child
}

func (r *run) session(file, symbol string) *session {
	absolute, err := filepath.Abs(file)
	if err != nil {
		absolute = file // the check of the file says what is wrong with it
	}
	return &session{file: file, setup: setup{File: absolute, Symbol: symbol, Options: r.options}}
}

// query has the child answer.
func (s *session) query(ctx context.Context, q question) outcome {
	if s.child == nil {
		within, cancel := context.WithCancel(ctx)
		child, err := pluginload.StartChild(within, setupEnv, s.setup)
		if err != nil {
			cancel()
			return outcome{Status: Failed, Reason: "cannot start a process for it: " + err.Error(),
				Fix: "allow this program to start itself"}
		}
		s.child, s.stop = child, cancel
	}
	limit := s.setup.Options.Limits.total()
	timer := time.AfterFunc(limit, s.child.Quit)
	var o outcome
	s.child.Requests.Encode(q) //nolint:errcheck // without a request no reply comes
	if err := s.child.Replies.Decode(&o); err == nil {
		timer.Stop()
		return o
	}
	inTime := timer.Stop()
	ended := s.child.Wait()
	said := s.child.Output()
	s.stop()
	s.child = nil
	switch {
	case ctx.Err() != nil:
		return outcome{Status: NotApplicable, Reason: ctx.Err().Error(), ended: true}
	case !inTime:
		return overdue(limit, said)
	default:
		return exited(ended, said)
	}
}

// end ends the child.
func (s *session) end() {
	if s.child != nil {
		s.stop()
		s.child.Wait()
		s.child = nil
	}
}

// exited returns the outcome of a check whose process ended by itself. said is what it wrote last.
func exited(ended, said string) outcome {
	o := outcome{Status: Failed, Reason: "it ended the process that called it: " + ended, Fix: fixExit, ended: true}
	for _, begin := range []string{"panic: ", "fatal error: "} {
		if _, trace, ok := strings.Cut("\n"+said, "\n"+begin); ok {
			o.Fix = fixPanic
			if begin == "panic: " {
				o.Fix = fixGoroutine // all others are recovered
			}
			_, goroutine, _ := strings.Cut(trace, "\n\n")
			goroutine, _, _ = strings.Cut(goroutine, "\n\n")
			o.Stack = frames(goroutine)
			return o
		}
	}
	return o
}

// overdue returns the outcome of a check that took too long. said is what its process wrote when it
// was made to quit.
func overdue(limit time.Duration, said string) outcome {
	return outcome{
		Status: Failed, Reason: fmt.Sprintf("it did not end within %v", limit), Fix: fixHang, Stack: stuckIn(said),
		ended: true,
	}
}
