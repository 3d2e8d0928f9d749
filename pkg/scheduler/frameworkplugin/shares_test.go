// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"strings"
	"testing"
)

func TestAPodGetsAnEventThatItsShareIsNotEnforced(t *testing.T) {
	const (
		quarter = `{"runningcontainer":{"main":{"requests":{"pair/A/gpu/a/memory":21474836480}}}}`
		whole   = `{"runningcontainer":{"main":{"requests":{"pair/A/gpu/a/cards":1}}}}`
		both    = `{"runningcontainer":{"main":{"requests":{"pair/A/gpu/a/cards":1,"pair/A/gpu/a/memory":1073741824}}}}`
		all     = `{"runningcontainer":{"main":{"requests":{"pair/A/gpu/a/memory":85899345920}}}}`
	)
	for name, test := range map[string]struct {
		annotation string
		want       string
	}{
		"a part of the memory": {
			quarter, `Normal ShareNotEnforced container "main" has 20 GiB of memory of device pair/`,
		},
		"a GPU":                           {whole, ""},
		"a GPU with a part of its memory": {both, ""},
		"all of the memory":               {all, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := annotated(newPod("p", 0), test.annotation)
			f := newFixtureWith(t, Options{}, &gpus{}, pairs(1, "n", 80<<30))
			if err := f.client.Tracker().Add(pod); err != nil {
				t.Fatal(err)
			}
			state := f.reserve(pod, "n0")
			if status := f.bind(state, pod, "n0"); !status.IsSuccess() {
				t.Fatal(status)
			}
			said := ""
			select {
			case said = <-f.events.Events:
			default:
			}
			if !strings.HasPrefix(said, test.want) || test.want == "" && said != "" ||
				test.want != "" && !strings.Contains(said, "it is not enforced") {
				t.Errorf("the pod's event is %q, want %q", said, test.want)
			}
		})
	}
}
