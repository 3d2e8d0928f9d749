// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
)

// setupEnv passes the setup to the child. Its presence makes a process a child.
const setupEnv = "KUBEDEVICE_PLUGIN_TEST"

// setup is what a child is there for.
type setup struct {
	File    string
	Symbol  string // the entry point
	Options Options
	Node    *node `json:",omitempty"` // for scheduler plugins, if it is known
}

// question is one check for the child to run.
type question struct {
	Check  string
	Placed []placed `json:",omitempty"`
}

// MaybeChild serves a test of plugin files and ends the process, if this process was started for
// that as a child of another one. Otherwise it does nothing. Call it before anything else in main,
// and in TestMain of tests that test plugin files.
func MaybeChild() {
	var s setup
	replies, child, err := pluginload.ServeParent(setupEnv, &s)
	if !child {
		return
	}
	if err == nil {
		err = s.serve(json.NewDecoder(os.Stdin), replies)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "test a plugin: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve loads the file and answers until there are no more questions.
func (s setup) serve(questions *json.Decoder, replies *json.Encoder) error {
	var answer func(question) (outcome, error)
	switch s.Symbol {
	case device.CreateSymbol:
		loaded, err := pluginload.Open(s.File, pluginload.Devices())
		if err != nil {
			return err
		}
		plugin := newDevicePlugin(loaded.Plugin, s.Options)
		answer = func(q question) (outcome, error) {
			plugin.placed = q.Placed
			o, err := answerWith(append(deviceChecks(), pairChecks()...), plugin, q)
			if q.Check == inventoryCheck && o.Status == OK {
				o.Node = newNode(plugin.last)
			}
			return o, err
		}
	case devicescheduler.CreateSymbol:
		loaded, err := pluginload.Open(s.File, pluginload.Schedulers())
		if err != nil {
			return err
		}
		plugin := newSchedulerPlugin(loaded.Plugin, s.Options, s.Node)
		answer = func(q question) (outcome, error) {
			o, err := answerWith(schedulerChecks(), plugin, q)
			if q.Check == placesCheck && o.Status == OK {
				o.Placed = plugin.placed
			}
			return o, err
		}
	default:
		return fmt.Errorf("unknown entry point %q", s.Symbol)
	}
	for {
		var q question
		if err := questions.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		o, err := answer(q)
		if err != nil {
			return err
		}
		if err := replies.Encode(o); err != nil {
			return err
		}
	}
}

// answerWith runs the check that is wanted.
func answerWith[T any](checks []check[T], subject T, q question) (outcome, error) {
	c, ok := find(checks, q.Check)
	if !ok {
		return outcome{}, fmt.Errorf("unknown check %q", q.Check)
	}
	return c.perform(subject), nil
}
