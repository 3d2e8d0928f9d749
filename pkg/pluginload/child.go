// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
)

const (
	// requestEnv carries the request to the child. Its presence makes a process a child.
	requestEnv = "KUBEDEVICE_PLUGIN_TRIAL"

	// replyFD is where the child finds the pipe for its reply: the first one behind the standard
	// three.
	replyFD = 3
)

// request is what the child is to load.
type request struct {
	File      string
	Symbol    string
	TimeLimit time.Duration
}

// reply is the result.
type reply struct {
	Name    string   // the plugin's own name, when it loaded
	Refusal *refusal // why it did not
}

// MaybeChild loads a plugin and ends the process, if this process was started for that as a child
// of another one. Otherwise it does nothing. Call it before anything else in main, and in TestMain
// of tests that load plugins.
func MaybeChild() {
	value, ok := os.LookupEnv(requestEnv)
	if !ok {
		return
	}
	if err := serve(value); err != nil {
		fmt.Fprintf(os.Stderr, "try a plugin: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(value string) error {
	// Neither is for processes that the plugin starts.
	if err := os.Unsetenv(requestEnv); err != nil {
		return err
	}
	syscall.CloseOnExec(replyFD)

	var req request
	if err := json.Unmarshal([]byte(value), &req); err != nil {
		return fmt.Errorf("decode %s: %w", requestEnv, err)
	}
	var rep reply
	var err error
	switch req.Symbol {
	case devicescheduler.CreateSymbol:
		rep.Name, err = perform(req, Schedulers())
	case device.CreateSymbol:
		rep.Name, err = perform(req, Devices())
	default:
		return fmt.Errorf("unknown entry point %q", req.Symbol)
	}
	if err != nil && !errors.As(err, &rep.Refusal) {
		return err
	}
	return json.NewEncoder(os.NewFile(replyFD, "reply")).Encode(rep)
}

func perform[T named](req request, kind Kind[T]) (name string, err error) {
	kind.timeLimit = req.TimeLimit
	o, err := openContained(req.File, kind)
	return o.name, err
}
