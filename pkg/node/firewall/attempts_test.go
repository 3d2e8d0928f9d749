// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"fmt"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// prefixed returns a container with as many variables as a ConfigMap has keys, all of which AMD's
// runtime obeys.
func prefixed(count int, adjusted bool) Container {
	config := &runtimeapi.ContainerConfig{}
	for i := range count {
		config.Envs = append(config.Envs, &runtimeapi.KeyValue{
			Key: fmt.Sprint("DOCKER_RESOURCE_", i), Value: []byte("0"),
		})
	}
	return Container{Config: config, Adjusted: adjusted}
}

func TestTheFirstAttemptsAreNamedAndTheOthersCounted(t *testing.T) {
	guard := node{own: []types.ResourceName{"amd.com/gpu"}}.guard(t)
	for _, adjusted := range []bool{false, true} {
		for count, want := range map[int]int{0: 0, 1: 1, maxNamed: maxNamed, 13000: maxNamed + 1} {
			ended := guard.Neutralise(prefixed(count, adjusted), nil, false).Ended
			if len(ended) != want {
				t.Errorf("%d variables are %d attempts, want %d", count, len(ended), want)
			}
			for i, attempt := range ended {
				text := fmt.Sprintf("DOCKER_RESOURCE_%d=0", i)
				if i == maxNamed {
					text = "12990 more environment variables"
				}
				if attempt.Vendor != "amd.com" || !strings.Contains(attempt.Text, text) {
					t.Errorf("attempt %d of %d is %v", i, count, attempt)
				}
			}
		}
	}
}

func TestAVariableThatIsSetAgainIsOneAttemptWithItsLastValue(t *testing.T) {
	var a attempts
	v := &vendor{name: "example.com"}
	for round := range 2 {
		for i := range maxNamed + 2 {
			a.add(v, taken{name: fmt.Sprint("V", i), value: fmt.Sprint(round)})
		}
	}
	all := a.all()
	if len(all) != maxNamed+1 || all[0].Text != "the environment variable V0=1" ||
		all[maxNamed].Text != "2 more environment variables" {
		t.Errorf("attempts %v", all)
	}
}

// The time for each variable must not grow with their number.
func BenchmarkNeutralise(b *testing.B) {
	guard := node{own: []types.ResourceName{"amd.com/gpu"}}
	for _, count := range []int{1000, 13000} {
		for _, adjusted := range []bool{false, true} {
			b.Run(fmt.Sprintf("variables=%d/adjusted=%t", count, adjusted), func(b *testing.B) {
				g, err := guard.firewall().Guard(b.Context(), map[types.ResourceName]bool{"amd.com/gpu": true})
				if err != nil {
					b.Fatal(err)
				}
				c := prefixed(count, adjusted)
				b.ReportAllocs()
				for b.Loop() {
					g.Neutralise(c, nil, false)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count), "ns/variable")
			})
		}
	}
}
