// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
)

// requestEnv contains the request for the child. Its presence makes a process a child.
const requestEnv = "KUBEDEVICE_PLUGIN_TRIAL"

// request says what the child loads.
type request struct {
	File      string
	Symbol    string
	TimeLimit time.Duration
}

// reply is the result.
type reply struct {
	Name    string   // the plugin's own name, if the child loaded it
	Refusal *refusal // the reason, if the child did not load it
}

// MaybeChild loads a plugin and ends the process, if another process started this one as a child
// for that. Otherwise it does nothing. Call it before anything else in main, and in TestMain of
// tests that load plugins.
func MaybeChild() {
	var req request
	replies, started, err := ServeParent(requestEnv, &req)
	if !started {
		return
	}
	if err == nil {
		err = serve(req, replies)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "try a plugin: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(req request, replies *json.Encoder) error {
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
	return replies.Encode(rep)
}

func perform[T named](req request, kind Kind[T]) (name string, err error) {
	kind.timeout = req.TimeLimit
	o, err := openIsolated(req.File, kind)
	return o.name, err
}
