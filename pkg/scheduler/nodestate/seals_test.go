// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// sealKey is a key of a scheduler, the same for the same number.
type sealKey struct {
	signer *seal.Signer
	public ed25519.PublicKey
}

func newSealKey(number byte) sealKey {
	private := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune('a'+number)), ed25519.SeedSize)))
	signer, err := seal.NewSigner(private)
	if err != nil {
		panic(err)
	}
	return sealKey{signer, private.Public().(ed25519.PublicKey)}
}

// of returns the seal of a bound pod's allocation.
func (k sealKey) of(pod *v1.Pod) string {
	allocation, err := deviceinfo.PodAllocation(pod)
	if err != nil {
		panic(err)
	}
	text, err := k.signer.Seal(seal.Decision{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName,
		Allocation: seal.DigestOf(allocation), Time: time.Unix(0, 0),
	})
	if err != nil {
		panic(err)
	}
	return text
}

// withSeal returns a copy of a pod with this seal.
func withSeal(pod *v1.Pod, text string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Annotations[seal.Annotation] = text
	return pod
}

// report puts a version of the node into the informer that reports these GPUs of a pod.
func (f *fixture) report(node *v1.Node, uid types.UID, gpus ...string) *v1.Node {
	f.Helper()
	granted := sdk.ResourceList{}
	for _, gpu := range gpus {
		granted[sdk.ResourceName(sdk.DeviceGroupPrefix+"/gpu/"+gpu+"/cards")] = 1
	}
	value, err := deviceinfo.EncodeHolders([]deviceinfo.Holder{{
		UID: uid, Namespace: "default", Name: string(uid), Containers: map[string]sdk.ResourceList{"main": granted},
	}})
	if err != nil {
		f.Fatal(err)
	}
	return f.reportText(node, value)
}

func (f *fixture) reportText(node *v1.Node, value string) *v1.Node {
	f.Helper()
	node = node.DeepCopy()
	node.ResourceVersion = f.nextVersion()
	delete(node.Annotations, deviceinfo.HoldersAnnotation)
	if value != "" {
		node.Annotations[deviceinfo.HoldersAnnotation] = value
	}
	if err := f.indexer.Update(node); err != nil {
		f.Fatal(err)
	}
	f.cache.Observe(f.Context(), node)
	return node
}

func TestUnderEnforceABoundPodHoldsWhatIsSealed(t *testing.T) {
	ours, other := newSealKey(1), newSealKey(2)
	f := newFixture(t)
	pod := f.bound(f.pod("p", 1), "n", allocated("p", "n", "B"))
	elsewhere := f.bound(f.pod("p", 1), "m", allocated("p", "m", "B"))
	victim := f.bound(f.pod("victim", 1), "n", allocated("victim", "n", "B"))
	earlier := f.bound(f.pod("p", 1), "n", allocated("p", "n", "A"))
	again := pod.DeepCopy()
	again.UID = "created-again"
	enlarged := withSeal(pod, ours.of(pod))
	enlarged.Annotations[deviceinfo.Annotation] = allocated("p", "n", "A", "B", "C")
	for name, test := range map[string]struct {
		pod      *v1.Pod
		enforced string // what is free
		off      string
		reason   seal.Reason
	}{
		"a seal":                         {withSeal(pod, ours.of(pod)), "A C", "A C", ""},
		"no seal: a forgery":             {pod, "A B C", "A C", seal.Missing},
		"text that is no seal":           {withSeal(pod, "x"), "A B C", "A C", seal.Malformed},
		"a seal of another key":          {withSeal(pod, other.of(pod)), "A B C", "A C", seal.UnknownKey},
		"another pod's seal":             {withSeal(pod, ours.of(victim)), "A B C", "A C", seal.OtherPod},
		"the seal of a namesake":         {withSeal(again, ours.of(pod)), "A B C", "A C", seal.OtherPod},
		"the seal of an earlier binding": {withSeal(pod, ours.of(earlier)), "A B C", "A C", seal.OtherAllocation},
		"the seal for another node":      {withSeal(pod, ours.of(elsewhere)), "A B C", "A C", seal.OtherNode},
		"an allocation that grew":        {enlarged, "A B C", "none", seal.OtherAllocation},
	} {
		t.Run(name, func(t *testing.T) {
			verifier := seal.NewVerifier(ours.public)
			enforced := newFixture(t)
			enforced.cache.Enforce(verifier)
			node := enforced.node("n", "n-1", "A", "B", "C")
			for range 2 { // computed, and from the caches
				enforced.want("free", enforced.free(nodeInfo(node, test.pod)), test.enforced)
				if got := seal.ReasonOf(enforced.cache.CheckSeal(verifier, test.pod)); got != test.reason {
					t.Errorf("reason %q, want %q", got, test.reason)
				}
				enforced.want("free with another pod", enforced.free(nodeInfo(node, test.pod, enforced.pod("x", 0))),
					test.enforced)
			}
			if misses := enforced.cache.CacheStats()["pod_seals"].Entries; misses != 1 {
				t.Errorf("verified %d times", misses)
			}
			off := newFixture(t)
			off.want("free when seals do not count", off.free(nodeInfo(off.node("n", "n-1", "A", "B", "C"), test.pod)),
				test.off)
		})
	}
}

func TestAPodWithoutASealHoldsWhatItsNodeReports(t *testing.T) {
	ours := newSealKey(1)
	f := newFixture(t)
	f.cache.Enforce(seal.NewVerifier(ours.public))
	node := f.node("n", "n-1", "A", "B", "C")
	old := f.bound(f.pod("old", 1), "n", allocated("old", "n", "A"))
	sealed := f.bound(f.pod("sealed", 1), "n", allocated("sealed", "n", "C"))
	sealed = withSeal(sealed, ours.of(sealed))
	f.want("before the node reports", f.free(nodeInfo(node, old, sealed)), "A B")
	node = f.report(node, "old", "A")
	f.want("as reported", f.free(nodeInfo(node, old, sealed)), "B")
	f.want("in a view", held(t, must(f.cache.View(t.Context(), node, []*v1.Pod{old, sealed})), nil), "A:old C:sealed")
	if got := f.cache.Held(old); got == nil || strings.Join(devices(got), " ") != "A" {
		t.Errorf("the pod holds %v", got)
	}
	node = f.report(node, "old", "B")
	f.want("not what the annotation says", f.free(nodeInfo(node, old, sealed)), "A")
	f.want("in the next view", held(t, must(f.cache.View(t.Context(), node, []*v1.Pod{old, sealed})), nil),
		"B:old C:sealed")
	f.want("a pod that is not listed holds nothing", f.free(nodeInfo(node, sealed)), "A B")
	node = f.report(node, "sealed", "A", "B", "C")
	f.want("a report of a sealed pod does not count", f.free(nodeInfo(node, old, sealed)), "A B")
	node = f.reportText(node, "{}")
	if got := f.free(nodeInfo(node, old, sealed)); !strings.Contains(got, "KubeDevice/Holders") {
		t.Errorf("with a report that cannot be read: %s", got)
	}
	node = f.reportText(node, "")
	f.want("without a report", f.free(nodeInfo(node, old, sealed)), "A B")
	if _, err := f.cache.View(t.Context(), node, []*v1.Pod{old}); err != nil {
		t.Error(err)
	}
}

// The kubelet gave a pod its GPU before these were scheduled. No seals are looked at.
func TestWithoutSealsAPodHoldsWhatItsNodeReportsBeforeWhatItsAnnotationSays(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A", "B", "C")
	adopted := f.bound(f.pod("adopted", 1), "n", "")
	other := f.bound(f.pod("other", 1), "n", allocated("other", "n", "C"))
	f.want("before the node reports", f.free(nodeInfo(node, adopted, other)), "A B")
	node = f.report(node, "adopted", "A")
	f.want("as reported", f.free(nodeInfo(node, adopted, other)), "B")
	if got := f.cache.Held(adopted); got == nil || strings.Join(devices(got), " ") != "A" {
		t.Errorf("the pod holds %v", got)
	}
	forged := f.bound(f.pod("adopted", 1), "n", allocated("adopted", "n", "B"))
	f.want("with an annotation that somebody wrote", f.free(nodeInfo(node, forged, other)), "B")
	f.want("when the pod is gone", f.free(nodeInfo(node, other)), "A B")

	elsewhere := f.node("m", "m-1", "A", "B")
	mine := f.bound(f.pod("mine", 1), "m", allocated("mine", "m", "A"))
	f.want("on the other node", f.free(nodeInfo(elsewhere, mine)), "B")
	f.report(node, "mine", "B")
	f.want("when the first node reports a pod of the other", f.free(nodeInfo(elsewhere, mine)), "B")
	node = f.report(node, "mine", "A", "B", "C")
	f.want("and its own are free all the same", f.free(nodeInfo(node)), "A B C")

	clone := nodeInfo(f.report(node, "adopted", "A"), adopted, other).Snapshot()
	if err := clone.RemovePod(klog.Background(), adopted); err != nil {
		t.Fatal(err)
	}
	f.want("when preemption looks what it would free", f.freeFor(clone, f.pod("q", 1), false), "A B")
}

func must(view *View, err error) *View {
	if err != nil {
		panic(err)
	}
	return view
}

func TestKeysRotateUnderBoundPods(t *testing.T) {
	before, after := newSealKey(1), newSealKey(2)
	f := newFixture(t)
	f.cache.Enforce(seal.NewVerifier(before.public))
	node := f.node("n", "n-1", "A", "B", "C")
	first := f.bound(f.pod("first", 1), "n", allocated("first", "n", "A"))
	first = withSeal(first, before.of(first))
	second := f.bound(f.pod("second", 1), "n", allocated("second", "n", "B"))
	second = withSeal(second, after.of(second))
	info := nodeInfo(node, first, second)
	pods := []*v1.Pod{first, second}
	step := func(what, wantFree, wantHeld string) {
		t.Helper()
		f.want(what, f.free(info), wantFree)
		f.want(what+", in a view", held(t, must(f.cache.View(t.Context(), node, pods)), nil), wantHeld)
	}
	step("with the first key", "B C", "A:first")
	snapshot := f.cache.Snapshot(info.(*framework.NodeInfo))
	if snapshot.Devices == nil || !snapshot.Holds() {
		t.Fatal("the state is not cached")
	}
	f.cache.Enforce(seal.NewVerifier(after.public, before.public))
	if snapshot.Holds() {
		t.Error("a previous snapshot holds")
	}
	step("with both keys", "C", "A:first B:second")
	f.cache.Enforce(seal.NewVerifier(after.public))
	step("with the second key", "A C", "B:second")
	node = f.report(node, "first", "A")
	info = nodeInfo(node, first, second)
	step("when the node reports the first pod", "C", "A:first B:second")
}

func TestTheSchedulersOwnPodsCountAsSealed(t *testing.T) {
	ours := newSealKey(1)
	verifier := seal.NewVerifier(ours.public)
	f := newFixtureOf(t, &gpus{pure: true})
	f.cache.Enforce(verifier)
	node := f.node("n", "n-1", "A", "B")
	pod := f.pod("p", 1)
	annotation := f.mustReserve(nodeInfo(node), pod)
	if got := strings.Join(devices(f.cache.ReservedAllocation("n", "p")), " "); got != "B" {
		t.Fatalf("reserved %s", got)
	}
	info := nodeInfo(node, assumed(pod, "n"))
	f.want("free next to the assumed pod", f.free(info), "A")
	before, err := f.cache.State(t.Context(), info, f.pod("probe", 1), true)
	if err != nil {
		t.Fatal(err)
	}
	bound := f.bound(pod, "n", annotation)
	bound = withSeal(bound, ours.of(bound))
	f.cache.Sealed(verifier, pod.UID, annotation, bound.Annotations[seal.Annotation])
	after, err := f.cache.State(t.Context(), nodeInfo(node, bound), f.pod("probe", 1), true)
	if err != nil || after != before {
		t.Errorf("the state was computed again for a pod that is seen bound (error %v)", err)
	}
	if stats := f.cache.CacheStats()["pod_seals"]; stats.Misses != 0 {
		t.Errorf("%d seals were verified that the scheduler has made itself", stats.Misses)
	}
	forged := f.bound(pod, "n", annotation)
	f.want("free when somebody else bound it so", f.free(nodeInfo(node, forged)), "A B")
}

// A scheduler that starts verifies each bound pod once.
func BenchmarkVerifyBoundPods(b *testing.B) {
	ours := newSealKey(1)
	pods := make([]*v1.Pod, 1000)
	for i := range pods {
		name := strings.Repeat("p", i%50+1) + string(rune('a'+i/50))
		pods[i] = assumed(with(&v1.Pod{}, allocated(name, "n", "A")), "n")
		pods[i].Namespace, pods[i].Name, pods[i].UID = "default", name, types.UID(name)
		pods[i].Spec.Containers = []v1.Container{{Name: "main"}}
		pods[i] = withSeal(pods[i], ours.of(pods[i]))
	}
	b.Run("verified", func(b *testing.B) {
		for b.Loop() {
			c := New(nil, nil, nil)
			for _, pod := range pods {
				if err := c.CheckSeal(seal.NewVerifier(ours.public), pod); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(pods)), "µs/pod")
	})
	b.Run("cached", func(b *testing.B) {
		c, verifier := New(nil, nil, nil), seal.NewVerifier(ours.public)
		for b.Loop() {
			for _, pod := range pods {
				if err := c.CheckSeal(verifier, pod); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(pods)), "ns/pod")
	})
}

func TestARestoredOlderGenerationDoesNotCount(t *testing.T) {
	ours := newSealKey(1)
	f := newFixture(t)
	f.cache.Enforce(seal.NewVerifier(ours.public))
	pod := f.bound(f.pod("p", 1), "n", allocated("p", "n", "A"))
	pod = withSeal(pod, ours.of(pod))
	for _, test := range []struct {
		generation int64
		free       string
	}{{0, "B"}, {1, "A"}} {
		value, err := deviceinfo.EncodeHolders([]deviceinfo.Holder{{
			UID: "p", Namespace: "default", Name: "p", Generation: test.generation,
			Containers: map[string]sdk.ResourceList{
				"main": {sdk.ResourceName(sdk.DeviceGroupPrefix + "/gpu/B/cards"): 1},
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
		node := f.reportText(f.node("n", "n-1", "A", "B"), value)
		f.want("free", f.free(nodeInfo(node, pod)), test.free)
	}
}
