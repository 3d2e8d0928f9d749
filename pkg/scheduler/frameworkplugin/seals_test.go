// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// sealKeys is a file of keys.
type sealKeys struct {
	testing.TB
	path string
	file *seal.File
}

// newSealKeys writes a file with the keys of these numbers.
func newSealKeys(t testing.TB, numbers ...int) *sealKeys {
	keys := &sealKeys{TB: t, path: filepath.Join(t.TempDir(), "keys.pem")}
	keys.write(numbers...)
	file, err := seal.OpenPrivateKeys(keys.path)
	if err != nil {
		t.Fatal(err)
	}
	keys.file = file
	return keys
}

func (k *sealKeys) write(numbers ...int) {
	k.Helper()
	private := make([]ed25519.PrivateKey, len(numbers))
	for i, number := range numbers {
		private[i] = ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune('a'+number)), ed25519.SeedSize)))
	}
	text, err := seal.EncodePrivateKeys(private)
	if err == nil {
		err = os.WriteFile(k.path, text, 0o600)
	}
	if err != nil {
		k.Fatal(err)
	}
}

// create gives the client a pod, which it can bind.
func (f *fixture) create(pod *v1.Pod) {
	f.Helper()
	if err := f.client.Tracker().Add(pod); err != nil {
		f.Fatal(err)
	}
}

// boundWith returns the pod as the API server has it after this Binding.
func boundWith(pod *v1.Pod, binding *v1.Binding) *v1.Pod {
	bound := assumed(pod, binding.Target.Name)
	bound.ResourceVersion += "-bound"
	bound.Annotations = binding.Annotations
	return bound
}

func TestABindingHasTheSealOfItsAllocation(t *testing.T) {
	for _, mode := range []seal.Mode{seal.Off, seal.Warn, seal.Enforce} {
		t.Run(string(mode), func(t *testing.T) {
			keys := newSealKeys(t, 1)
			f := newFixtureWith(t, Options{Seals: Seals{keys.file, mode}}, &gpus{}, []*v1.Node{newNode("n", "A")})
			pod := newPod("p", 1)
			f.create(pod)
			if status := f.bind(f.reserve(pod, "n"), pod, "n"); !status.IsSuccess() {
				t.Fatal(status)
			}
			binding := f.bindings()[0]
			allocation, err := deviceinfo.PodAllocation(boundWith(pod, binding))
			if err != nil {
				t.Fatal(err)
			}
			err = keys.file.Verifier().Verify(binding.Annotations[seal.Annotation], seal.Decision{
				UID: pod.UID, Namespace: "default", Name: "p", Node: "n", Allocation: seal.DigestOf(allocation),
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWithoutKeysABindingHasNoSeal(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("n", "A")})
	pod := newPod("p", 1)
	f.create(pod)
	if status := f.bind(f.reserve(pod, "n"), pod, "n"); !status.IsSuccess() {
		t.Fatal(status)
	}
	if text, ok := f.bindings()[0].Annotations[seal.Annotation]; ok {
		t.Errorf("seal %q", text)
	}
}

func TestABindingThatIsTriedAgainIsSealedToo(t *testing.T) {
	keys := newSealKeys(t, 1)
	nodes := []*v1.Node{newNode("n", "A", "B")}
	f := newFixtureWith(t, Options{Seals: Seals{keys.file, seal.Enforce}}, &gpus{}, nodes)
	pod := newPod("p", 1)
	f.bindingFails(apierrors.NewTimeoutError("no answer", 1))
	if status := f.bind(f.reserve(pod, "n"), pod, "n"); status.IsSuccess() {
		t.Fatal("it is bound")
	}
	keys.write(2, 1) // the next try is sealed with another key
	if _, err := keys.file.Reload(); err != nil {
		t.Fatal(err)
	}
	if status := f.bind(f.reserve(pod, "n"), pod, "n"); status.IsSuccess() {
		t.Fatal("it is bound")
	}
	bindings := f.bindings()
	if len(bindings) != 2 || annotationChanged(bindings[0], bindings[1], deviceinfo.Annotation) {
		t.Fatalf("bindings %v", bindings)
	}
	for i, binding := range bindings {
		if err := f.plugin.nodes.CheckSeal(keys.file.Verifier(), boundWith(pod, binding)); err != nil {
			t.Errorf("try %d: %v", i, err)
		}
	}
}

func TestUnsealedPodsAreCountedAndReportedOnce(t *testing.T) {
	for _, mode := range []seal.Mode{seal.Warn, seal.Enforce} {
		t.Run(string(mode), func(t *testing.T) {
			keys := newSealKeys(t, 1)
			forged := annotated(assumed(newPod("forged", 1), "n"), allocationOf("forged", "n", "A"))
			plain := assumed(newPod("plain", 0), "n")
			f := newFixtureWith(t, Options{Seals: Seals{keys.file, mode}}, &gpus{}, []*v1.Node{newNode("n", "A")},
				forged, plain)
			recorder := events.NewFakeRecorder(10)
			f.plugin.recorder = recorder
			count := func() int {
				value, err := testutil.GetGaugeMetricValue(metrics.UnsealedPods.WithLabelValues(string(seal.Missing)))
				if err != nil {
					t.Fatal(err)
				}
				return int(value)
			}
			await(t, "the pod is counted", func() bool { return count() == 1 })
			for range 2 {
				f.plugin.unsealed.report(recorder, mode)
			}
			if len(recorder.Events) != 1 {
				t.Fatalf("%d events", len(recorder.Events))
			}
			if event := <-recorder.Events; !strings.Contains(event, "Warning UnsealedAllocation") ||
				!strings.Contains(event, "default/forged") {
				t.Errorf("event %q", event)
			}
			f.delete(forged)
			await(t, "the pod is forgotten", func() bool { return count() == 0 })
		})
	}
}

func TestKeysThatChangeAreInUseAtOnce(t *testing.T) {
	keys := newSealKeys(t, 1)
	f := newFixtureWith(t, Options{Seals: Seals{keys.file, seal.Enforce}}, &gpus{}, []*v1.Node{newNode("n", "A")})
	before := keys.file.Verifier()
	failed := metrics.SealKeyReloads.WithLabelValues("failed")
	changed := metrics.SealKeyReloads.WithLabelValues("changed")
	f.plugin.keysRead(t.Context(), errors.New("malformed"))
	if value, err := testutil.GetCounterMetricValue(failed); err != nil || value != 1 {
		t.Errorf("failures %v, %v", value, err)
	}
	keys.write(2)
	if _, err := keys.file.Reload(); err != nil {
		t.Fatal(err)
	}
	f.plugin.keysRead(t.Context(), nil)
	if value, err := testutil.GetCounterMetricValue(changed); err != nil || value != 1 {
		t.Errorf("changes %v, %v", value, err)
	}
	if keys.file.Verifier() == before {
		t.Error("the keys are the previous ones")
	}
}

// What sealing costs, compared with all of Bind with a client that does nothing.
func BenchmarkBind(b *testing.B) {
	for name, seals := range map[string]Seals{
		"without": {}, "sealed": {newSealKeys(b, 1).file, seal.Enforce},
	} {
		b.Run(name, func(b *testing.B) {
			f := newFixtureWith(b, Options{Seals: seals}, &gpus{}, []*v1.Node{newNode("n", "A", "B")})
			pod := newPod("p", 1)
			f.create(pod)
			state := f.reserve(pod, "n")
			for b.Loop() {
				status := f.framework.RunBindPlugins(context.Background(), state, assumed(pod, "n"), "n")
				if !status.IsSuccess() {
					b.Fatal(status)
				}
			}
		})
	}
}
