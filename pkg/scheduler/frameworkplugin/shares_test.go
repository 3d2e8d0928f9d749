// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// enforcing returns nodes of pairs that publish by what they hold containers to shares of GPU A.
func enforcing(onExceeded string) []*v1.Node {
	nodes := pairs(1, "n", 80<<30)
	if onExceeded != "" {
		nodes[0].Annotations[deviceinfo.ShareEnforcementAnnotation] = `{"onShareExceeded":"` + onExceeded +
			`","devices":{"gpu/A":["policed"]}}`
	}
	return nodes
}

const (
	quarter = `{"runningcontainer":{"main":{"requests":{"pair/A/gpu/a/memory":21474836480}}}}`
	whole   = `{"runningcontainer":{"main":{"requests":{"pair/A/gpu/a/cards":1}}}}`
)

func TestAPodGetsAnEventThatSaysWhatHoldsItToItsShares(t *testing.T) {
	const (
		both = `{"runningcontainer":{"main":{"requests":{"pair/A/gpu/a/cards":1,"pair/A/gpu/a/memory":1073741824}}}}`
		all  = `{"runningcontainer":{"main":{"requests":{"pair/A/gpu/a/memory":85899345920}}}}`
	)
	for name, test := range map[string]struct {
		annotation, node, pod string
		begins, ends          string
	}{
		"a part of the memory": {
			quarter, "", "", `Normal DeviceShared container "main" has 20 GiB of memory of device pair/`,
			"(counted); counted: nothing keeps a container from using more, and others either",
		},
		"a part that the node polices": {
			quarter, "End", "policed",
			`Normal DeviceShared container "main" has 20 GiB of memory of device pair/0/gpu/A `,
			"(policed); policed: the node ends a container that uses more for a while, or evicts the pod",
		},
		"a GPU":                           {whole, "End", "", "", ""},
		"a GPU with a part of its memory": {both, "End", "", "", ""},
		"all of the memory":               {all, "End", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := annotated(newPod("p", 0), test.annotation)
			if test.pod != "" {
				pod.Annotations[deviceinfo.LeastEnforcementAnnotation] = test.pod
			}
			f := newFixtureWith(t, Options{}, &gpus{}, enforcing(test.node))
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
			if !strings.HasPrefix(said, test.begins) || !strings.HasSuffix(said, test.ends) ||
				test.begins == "" && said != "" {
				t.Errorf("the pod's event is %q, want %q…%q", said, test.begins, test.ends)
			}
		})
	}
}

func TestAPodGetsSharesOnlyWhereTheyAreHeldAsItDemands(t *testing.T) {
	const two = `{"runningcontainer":{"main":{"requests":{"pair/A/gpu/a/memory":53687091200,` +
		`"pair/B/gpu/b/memory":53687091200}}}}`
	for name, test := range map[string]struct {
		request, node     string
		least, onExceeded string
		want              string // of the status; empty if the pod fits
	}{
		"it demands nothing":                 {quarter, "", "", "", ""},
		"it is content with what is counted": {quarter, "", "counted", "", ""},
		"the node says nothing": {
			quarter, "", "policed", "", "are counted at most, and the pod demands policed",
		},
		"the node polices":                      {quarter, "End", "policed", "", ""},
		"the node would, and nothing follows":   {quarter, "Ignore", "policed", "", "are counted at most"},
		"the pod itself has something follow":   {quarter, "Ignore", "policed", "Evict", ""},
		"the pod has nothing follow":            {quarter, "End", "policed", "Ignore", "are counted at most"},
		"more than the one GPU that is policed": {two, "End", "policed", "", "less than 100 GiB of GPU memory free"},
		"the same without a demand":             {two, "End", "", "", ""},
		"hardware holds no share": {
			quarter, "End", "hardware", "", "are policed at most, and the pod demands hardware",
		},
		"a whole GPU is held by hardware": {whole, "", "hardware", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := annotated(newPod("p", 0), test.request)
			for key, value := range map[string]string{
				deviceinfo.LeastEnforcementAnnotation: test.least,
				deviceinfo.OnShareExceededAnnotation:  test.onExceeded,
			} {
				if value != "" {
					pod.Annotations[key] = value
				}
			}
			f := newFixtureWith(t, Options{}, &gpus{}, enforcing(test.node))
			_, status := f.fit(pod, "n0")
			if status.IsSuccess() != (test.want == "") || !strings.Contains(status.Message(), test.want) {
				t.Errorf("%v, want %q", status, test.want)
			}
		})
	}
}
