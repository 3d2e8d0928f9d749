// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/pkg/plugincall"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestAPluginThatFailsForPlainRequestsIsQuarantinedAndComesBack(t *testing.T) {
	for name, answered := range map[string][]step{
		"it answered for two nodes": {{0, "a", 1, "fits"}, {0, "b", 1, "fits"}},
		"it answered for one":       {{0, "a", 1, "fits"}},
		"it answered for another":   {{0, "c", 1, "fits"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, plainly)
			f.run(answered...)
			broken := true
			f.fails = func(string, string, int64) string {
				if broken {
					return "panic"
				}
				return ""
			}
			f.run(
				step{0, "a", 3, ofPlugin},
				step{0, "a", 1, notCalled + ofPlugin},
				step{0, "c", 2, notCalled + ofPlugin},
			)
			f.wantBlamed("plugin")
			f.run(
				step{firstBackOff, "c", 1, notCalled + ofPlugin},
				step{firstBackOff, "c", 1, notCalled + ofPlugin},
				step{firstBackOff, "c", 1, notCalled + ofPlugin},
			)
			if err := f.query("c", requestFor(1)); pluginhost.RetryAfter(err) != 4*firstBackOff {
				t.Errorf("to be tried again after %v, want %v", pluginhost.RetryAfter(err), 4*firstBackOff)
			}
			broken = false
			f.run(
				step{4*firstBackOff - 1, "c", 1, notCalled + ofPlugin},
				step{1, "c", 1, "fits"},
				step{0, "a", 3, "fits"},
			)
			if _, err := f.AddNode(t.Context(), types.NewNodeInfoWithName("d")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAPluginThatFailsFromTheStartIsQuarantinedOnTheSecondNode(t *testing.T) {
	f := newFixture(t, plainly)
	broken := true
	f.fails = func(string, string, int64) string {
		if broken {
			return "panic"
		}
		return ""
	}
	f.run(
		step{0, "a", 3, ofNode},
		step{0, "b", 3, ofPlugin},
		step{0, "c", 3, notCalled + ofPlugin},
	)
	broken = false
	f.run(step{firstBackOff, "c", 3, "fits"})
}

// A plugin that fails for a node that it knows to be gone is not to blame.
func TestNoProbeIsForANodeThatIsGone(t *testing.T) {
	f := newFixture(t, plainly)
	f.run(step{0, "a", 1, "fits"})
	f.RemoveNode(t.Context(), "a")
	f.fails = func(node, _ string, _ int64) string {
		if node != "c" {
			return "panic"
		}
		return ""
	}
	f.run(
		step{0, "b", 1, ofNode},
		step{0, "c", 1, "fits"},
	)
}

// When one tenant sends any mixture of requests that panic, end the goroutine or hang, requests of
// others are answered, and the plugin is not quarantined.
func TestNoMixtureOfBadRequestsTakesThePluginFromOthers(t *testing.T) {
	for name, plugin := range map[string]func(*fake) devicescheduler.DeviceScheduler{
		"one call at a time": plainly,
		"concurrent calls":   concurrently,
		"remembered answers": func(f *fake) devicescheduler.DeviceScheduler { return pure{f} },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				badMixture(t, newFixture(t, plugin), rand.New(rand.NewPCG(seed, 0)), name == "concurrent calls")
			}
		})
	}
}

func badMixture(t *testing.T, f *fixture, random *rand.Rand, concurrent bool) {
	kinds := []string{"panic", "exit", "hang"}
	f.fails = func(_, _ string, gpus int64) string {
		if gpus < 10 {
			return ""
		}
		return kinds[gpus%3]
	}
	hung := 0
	letReturn := func(calls int) {
		for ; hung > calls; hung-- {
			f.release <- struct{}{}
		}
		f.awaitReturn(calls)
	}
	for range 200 {
		node := []string{"a", "b", "c"}[random.IntN(3)]
		if random.IntN(2) == 0 {
			err := f.query(node, requestFor(10+random.Int64N(30)))
			if !errors.Is(err, pluginhost.ErrNoAnswer) {
				t.Fatalf("a bad request: %v", err)
			}
			if plugincall.OutcomeOf(err) == plugincall.TimedOut {
				hung++
			}
		}
		if !concurrent {
			letReturn(0)
		}
		if err := f.query(node, requestFor(1+random.Int64N(4))); err != nil {
			t.Fatalf("a good request: %v", err)
		}
		f.clock.Step(time.Duration(random.Int64N(int64(3 * time.Second))))
		if random.IntN(10) == 0 {
			letReturn(random.IntN(hung + 1))
		}
	}
	letReturn(0)
	for _, on := range f.blamed() {
		if on != "request" {
			t.Errorf("a failure was blamed on: %s", on)
		}
	}
}

// Many nodes are asked at once, as Filter does: the plugin is probed for two of them at most.
func TestFailuresOfOneRequestOnManyNodesAreDiagnosedOnce(t *testing.T) {
	f := newFixture(t, concurrently)
	const count = 16
	var together sync.WaitGroup
	together.Add(count)
	f.fails = func(_, _ string, gpus int64) string {
		if gpus == 3 {
			together.Done()
			together.Wait()
			return "panic"
		}
		return ""
	}
	var asking16 sync.WaitGroup
	for i := range count {
		node := nodeLike(t, f.Set, fmt.Sprint("n", i), 4, 0)
		asking16.Go(func() {
			if _, err := f.Fit(t.Context(), node, requestFor(3)); !errors.Is(err, pluginhost.ErrNoAnswer) {
				t.Error(err)
			}
		})
	}
	asking16.Wait()
	f.wantBlamed("request", "request")
}
