// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics/testutil"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
)

// fixture is the plugin in a cluster of one node, n1, that has devices of the driver gpus.
type fixture struct {
	*testing.T
	*Plugin
	client *fake.Clientset
	node   fwk.NodeInfo
	log    eventLog
	ours   ours
}

// ours are devices that are KubeDevice's, by the names that they have in slices.
type ours struct{ sets.Set[structured.DeviceID] }

// Ours implements Ledger.
func (o ours) Ours(context.Context) (sets.Set[structured.DeviceID], error) { return o.Set, nil }

// eventLog keeps events as text.
type eventLog struct{ texts *[]string }

func (l eventLog) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	*l.texts = append(*l.texts, reason+": "+fmt.Sprintf(note, args...))
}
func (l eventLog) WithLogger(klog.Logger) events.EventRecorderLogger { return l }

// newFixture makes a plugin. The first and the third of four devices are close, and so are the
// others; change changes their slice. objects are claims and pods.
func newFixture(t *testing.T, change func(*resourceapi.ResourceSlice), objects ...runtime.Object) *fixture {
	t.Helper()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: gpus, NodeName: ptr.To("n1"), Pool: resourceapi.ResourcePool{Name: "n1", ResourceSliceCount: 1},
		},
	}
	for i, root := range []string{"0", "1", "0", "1"} {
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{
			Name: fmt.Sprintf("dev-%d", i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"resource.kubernetes.io/pcieRoot": {StringValue: ptr.To(root)},
			},
		})
	}
	if change != nil {
		change(slice)
	}
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	client := fake.NewClientset(append(objects, node, slice, class)...)
	factory := informers.NewSharedInformerFactory(client, 0)
	ctx := klog.NewContext(t.Context(), klog.Logger{})
	claims := assumecache.NewAssumeCache(klog.Logger{}, factory.Resource().V1().ResourceClaims().Informer(),
		"ResourceClaim", "", nil)
	tracker, err := resourceslicetracker.StartTracker(ctx, resourceslicetracker.Options{
		SliceInformer: factory.Resource().V1().ResourceSlices(), KubeClient: client,
	})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{T: t, client: client, log: eventLog{new([]string)}, ours: ours{sets.New[structured.DeviceID]()}}
	var pods []*v1.Pod
	for _, object := range objects {
		if pod, ok := object.(*v1.Pod); ok && pod.Spec.NodeName != "" {
			pods = append(pods, pod)
		}
	}
	snapshot := internalcache.NewSnapshot(pods, []*v1.Node{node})
	if f.node, err = snapshot.NodeInfos().Get("n1"); err != nil {
		t.Fatal(err)
	}
	handle, err := frameworkruntime.NewFramework(ctx, nil, nil, frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory), frameworkruntime.WithEventRecorder(f.log),
		frameworkruntime.WithSharedDRAManager(dynamicresources.NewDRAManager(ctx, claims, tracker, factory)),
		frameworkruntime.WithSnapshotSharedLister(snapshot))
	if err != nil {
		t.Fatal(err)
	}
	if f.Plugin, err = New(ctx, ArgsIn(&config.KubeSchedulerProfile{}), DefaultLevels, handle, f.ours); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	f.awaitClaims(objects)
	t.Cleanup(factory.Shutdown)
	return f
}

// awaitClaims waits until the claims, and then the devices allocated to them, are known: the cache
// of claims follows its informer, and the set of devices follows that cache.
func (f *fixture) awaitClaims(objects []runtime.Object) {
	f.Helper()
	wanted, held := 0, 0
	for _, object := range objects {
		if claim, ok := object.(*resourceapi.ResourceClaim); ok {
			wanted++
			if claim.Status.Allocation != nil {
				held += len(claim.Status.Allocation.Devices.Results)
			}
		}
	}
	for {
		claims, err := f.manager.ResourceClaims().List()
		f.must(err)
		allocated, err := f.manager.ResourceClaims().ListAllAllocatedDevices()
		if err == nil && len(allocated) == held && len(claims) == wanted {
			return
		}
	}
}

// claim returns a claim for so many devices, and with results one that these are allocated to.
func claim(name string, count int64, results ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "r", Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: "gpu", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
			},
		}}}},
	}
	if len(results) > 0 {
		c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{
			Resource: "pods", Name: name, UID: types.UID(name + "-pod"),
		}}
		c.Status.Allocation = &resourceapi.AllocationResult{}
		for _, device := range results {
			c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
				resourceapi.DeviceRequestAllocationResult{Request: "r", Driver: gpus, Pool: "n1", Device: device})
		}
	}
	return c
}

// podOf returns a pod that uses the claims of these names; it has the name of the first.
func podOf(node string, claims ...string) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: claims[0], UID: types.UID(claims[0] + "-pod")},
		Spec:       v1.PodSpec{NodeName: node},
	}
	for _, name := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{
			Name: name, ResourceClaimName: ptr.To(name),
		})
	}
	return pod
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// begin begins a pod's cycle.
func (f *fixture) begin(pod *v1.Pod) fwk.CycleState {
	f.Helper()
	state := framework.NewCycleState()
	if _, status := f.PreFilter(f.Context(), state, pod, nil); !status.IsSuccess() {
		f.Fatalf("PreFilter: %v", status)
	}
	return state
}

// reserve runs a pod's cycle, and returns the devices that are being allocated to a claim.
func (f *fixture) reserve(pod *v1.Pod, claim string) string {
	f.Helper()
	state := f.begin(pod)
	if status := f.Filter(f.Context(), state, pod, f.node); !status.IsSuccess() {
		f.Fatalf("Filter: %v", status)
	}
	if status := f.Reserve(f.Context(), state, pod, "n1"); !status.IsSuccess() {
		f.Fatalf("Reserve: %v", status)
	}
	devices := f.pending(claim)
	f.Unreserve(f.Context(), state, pod, "n1")
	if left := f.pending(claim); left != "" {
		f.Errorf("after Unreserve the claim has %s", left)
	}
	return devices
}

func (f *fixture) pending(claim string) string {
	allocation := f.manager.ResourceClaims().GetPendingAllocation(types.UID(claim))
	if allocation == nil {
		return ""
	}
	var names []string
	for _, result := range allocation.Devices.Results {
		names = append(names, result.Device)
	}
	return strings.Join(names, " ")
}

// left returns how many cycles were left to upstream for a reason.
func left(t *testing.T, reason Reason) float64 {
	t.Helper()
	n, err := testutil.GetCounterMetricValue(metrics.ClaimsLeftToUpstream.WithLabelValues(string(reason)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTheChosenDevicesAreAllocatedByUpstreamsPlugin(t *testing.T) {
	f := newFixture(t, nil, claim("one", 1, "dev-1"), claim("two", 2), podOf("n1", "one"))
	if got := f.reserve(podOf("", "two"), "two"); got != "dev-0 dev-2" {
		t.Errorf("the claim gets %s", got)
	}
	if len(*f.log.texts) > 0 {
		t.Errorf("events: %q", *f.log.texts)
	}
}

// By their roots, the first and the third device are close.
func TestADriversOwnAttributeComesBeforeTheOthers(t *testing.T) {
	f := newFixture(t, func(slice *resourceapi.ResourceSlice) {
		for i, link := range []int64{0, 1, 2, 2} {
			slice.Spec.Devices[i].Attributes["link"] = resourceapi.DeviceAttribute{IntValue: ptr.To(link)}
		}
	}, claim("two", 2))
	levels, err := ParseLevels(gpus + "/link")
	f.must(err)
	f.options.Levels = slices.Concat(levels, DefaultLevels)
	if got := f.reserve(podOf("", "two"), "two"); got != "dev-2 dev-3" {
		t.Errorf("the claim gets %s", got)
	}
}

func TestTheOtherDeviceOfATakenPairIsPreferred(t *testing.T) {
	f := newFixture(t, nil, claim("one", 1, "dev-3"), claim("two", 1), podOf("n1", "one"))
	if got := f.reserve(podOf("", "two"), "two"); got != "dev-1" {
		t.Errorf("the claim gets %s", got)
	}
}

// The choice is wrong because ours is made to ignore taints.
func TestRefusalsOfUpstreamAreEventsAndUpstreamChooses(t *testing.T) {
	f := newFixture(t, func(slice *resourceapi.ResourceSlice) {
		slice.Spec.Devices[0].Taints = []resourceapi.DeviceTaint{{
			Key: "k", Effect: resourceapi.DeviceTaintEffectNoSchedule,
		}}
	}, claim("one", 1))
	f.options.Features.DeviceTaints = false
	before, err := testutil.GetCounterMetricValue(metrics.ClaimDisagreements)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.reserve(podOf("", "one"), "one"); got != "dev-1" {
		t.Errorf("the claim gets %s", got)
	}
	if !slices.ContainsFunc(*f.log.texts, func(text string) bool {
		return strings.HasPrefix(text, "ClaimChoiceRefused: Upstream's allocator chooses the devices on node n1")
	}) {
		t.Errorf("events: %q", *f.log.texts)
	}
	if after, err := testutil.GetCounterMetricValue(metrics.ClaimDisagreements); err != nil || after != before+1 {
		t.Errorf("%v disagreements after %v (%v)", after, before, err)
	}
}

// The devices of the first pair are KubeDevice's.
func TestDevicesOfKubeDevicesAreForNoClaim(t *testing.T) {
	withCapacity := claim("capacity", 1)
	withCapacity.Spec.Devices.Requests[0].Exactly.Capacity = &resourceapi.CapacityRequirements{}
	f := newFixture(t, nil, claim("one", 1), claim("three", 3), claim("holder", 1, "dev-1"),
		withCapacity, podOf("n1", "holder"))
	for _, name := range []string{"dev-0", "dev-2"} {
		f.ours.Insert(structured.MakeDeviceID(gpus, "n1", name))
	}
	if got := f.reserve(podOf("", "one"), "one"); got != "dev-3" {
		t.Errorf("a claim gets %s", got)
	}
	if got := f.reserve(podOf("", "capacity"), "capacity"); got != "dev-3" {
		t.Errorf("a claim that is left to upstream gets %s", got)
	}
	pod := podOf("", "three")
	got := f.Filter(t.Context(), f.begin(pod), pod, f.node)
	if got.Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("evictions may help a pod that needs them: %v", got)
	}
	const want = `have too few devices for request "r" of claim "three" (3 of class "gpu", best: 1 free of 4, held ` +
		`by claim holder and KubeDevice, which allocates 2 of them itself)`
	if got.Message() != want {
		t.Errorf("the reason is %s, want %s", got.Message(), want)
	}
}

// The claim has had its device since before KubeDevice's node listed it.
func TestADeviceOfKubeDevicesIsNotFreeWhenItsClaimIs(t *testing.T) {
	f := newFixture(t, nil, claim("old", 2, "dev-0", "dev-1"), claim("new", 4), podOf("n1", "old"))
	pod := podOf("", "new")
	simulation := f.begin(pod).Clone()
	removed, err := framework.NewPodInfo(podOf("n1", "old"))
	f.must(err)
	f.RemovePod(t.Context(), simulation, pod, removed, f.node)
	if got := f.Filter(t.Context(), simulation, pod, f.node); !got.IsSuccess() {
		t.Errorf("without the claim: %v", got)
	}
	f.ours.Insert(structured.MakeDeviceID(gpus, "n1", "dev-0"))
	simulation = f.begin(pod).Clone()
	f.RemovePod(t.Context(), simulation, pod, removed, f.node)
	if got := f.Filter(t.Context(), simulation, pod, f.node); got.Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("the device is KubeDevice's: %v", got)
	}
}

func TestUnsupportedClaimsAreLeftToUpstream(t *testing.T) {
	capacity := claim("capacity", 2)
	capacity.Spec.Devices.Requests[0].Exactly.Capacity = &resourceapi.CapacityRequirements{}
	for name, test := range map[string]struct {
		claim  *resourceapi.ResourceClaim
		change func(*resourceapi.ResourceSlice)
		reason Reason
		want   string
	}{
		"a pool with binding conditions": {claim("two", 2), func(slice *resourceapi.ResourceSlice) {
			slice.Spec.Devices[3].BindingConditions = []string{"ready"}
			slice.Spec.Devices[3].BindingFailureConditions = []string{"failed"}
		}, "pool_feature", "dev-0 dev-1"},
		"a claim that requests capacity": {capacity, nil, "claim_feature", "dev-0 dev-1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.change, test.claim)
			before := left(t, test.reason)
			if got := f.reserve(podOf("", test.claim.Name), test.claim.Name); got != test.want {
				t.Errorf("the claim gets %s, want %s", got, test.want)
			}
			if n := left(t, test.reason) - before; n != 1 {
				t.Errorf("counted %v times", n)
			}
		})
	}
}

func TestEvictionsCanHelpUnlessTheDevicesAreNotThere(t *testing.T) {
	f := newFixture(t, nil, claim("all", 4, "dev-0", "dev-1", "dev-2", "dev-3"), claim("one", 1), claim("five", 5),
		podOf("n1", "all"))
	for name, want := range map[string]fwk.Code{
		"one": fwk.Unschedulable, "five": fwk.UnschedulableAndUnresolvable,
	} {
		pod := podOf("", name)
		if got := f.Filter(t.Context(), f.begin(pod), pod, f.node); got.Code() != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestASimulationFreesClaimsOfWhichAllConsumersAreRemoved(t *testing.T) {
	shared := claim("shared", 2, "dev-0", "dev-1")
	shared.Status.ReservedFor = append(shared.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
		Resource: "pods", Name: "other", UID: "other-pod",
	})
	other := podOf("n1", "shared")
	other.Name, other.UID = "other", "other-pod"
	f := newFixture(t, nil, shared, claim("own", 2, "dev-2", "dev-3"), claim("new", 1), claim("pair", 3),
		podOf("n1", "shared"), other, podOf("n1", "own"))
	info := func(pod *v1.Pod) fwk.PodInfo {
		i, err := framework.NewPodInfo(pod)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	first, own := info(podOf("n1", "shared")), info(podOf("n1", "own"))
	pod := podOf("", "new")
	state := f.begin(pod)
	simulation := state.Clone()
	expect := func(when string, fits bool) {
		t.Helper()
		if got := f.Filter(t.Context(), simulation, pod, f.node); got.IsSuccess() != fits {
			t.Errorf("%s: %v", when, got)
		}
	}
	remove := func(removed fwk.PodInfo) { f.RemovePod(t.Context(), simulation, pod, removed, f.node) }
	add := func(added fwk.PodInfo) { f.AddPod(t.Context(), simulation, pod, added, f.node) }
	expect("nothing removed", false)
	remove(first)
	expect("one of two consumers removed", false)
	remove(info(other))
	expect("both consumers removed", true)
	add(first)
	expect("one of them back", false)
	remove(own)
	expect("another claim's consumer removed", true)
	if got := f.Filter(t.Context(), state, pod, f.node); got.IsSuccess() {
		t.Error("the simulation has changed the pod's cycle")
	}
}

func TestAPodWaitsForClaimsOfPodsThatHaveEnded(t *testing.T) {
	ended := podOf("n1", "ended")
	ended.Status.Phase = v1.PodSucceeded
	for name, test := range map[string]struct {
		claim string
		want  fwk.Code
	}{
		"their devices are enough": {"one", fwk.UnschedulableAndUnresolvable},
		"they are not":             {"three", fwk.Unschedulable},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, nil, claim("ended", 1, "dev-0"), claim("gone", 1, "dev-1"),
				claim("runs", 2, "dev-2", "dev-3"), claim("one", 1), claim("three", 3), ended, podOf("n1", "runs"))
			pod := podOf("", test.claim)
			state := f.begin(pod)
			statuses := framework.NewDefaultNodeToStatus()
			statuses.Set("n1", f.Filter(t.Context(), state, pod, f.node).WithPlugin(Name))
			if _, got := f.PostFilter(t.Context(), state, pod, statuses); got.Code() != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestAClaimLosesItsDevicesWhenItsPodIsNotBound(t *testing.T) {
	other := []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "b", UID: "b-pod"}}
	for name, test := range map[string]struct {
		meanwhile func(f *fixture, claim *resourceapi.ResourceClaim) // between PreBind and Unreserve
		keeps     bool
	}{
		"the binding failed": {func(*fixture, *resourceapi.ResourceClaim) {}, false},
		"the pod was deleted, too": {func(f *fixture, _ *resourceapi.ResourceClaim) {
			f.must(f.client.CoreV1().Pods("default").Delete(f.Context(), "one", metav1.DeleteOptions{}))
		}, false},
		"the API server bound it, and its answer was lost": {func(f *fixture, _ *resourceapi.ResourceClaim) {
			_, err := f.client.CoreV1().Pods("default").Update(f.Context(), podOf("n1", "one"), metav1.UpdateOptions{})
			f.must(err)
		}, true},
		"another pod uses the claim": {func(f *fixture, claim *resourceapi.ResourceClaim) {
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, other...)
			_, err := f.client.ResourceV1().ResourceClaims("default").UpdateStatus(f.Context(), claim,
				metav1.UpdateOptions{})
			f.must(err)
		}, true},
		"nothing is known of the pod": {func(f *fixture, _ *resourceapi.ResourceClaim) {
			f.client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("away")
			})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf("", "one")
			f := newFixture(t, nil, claim("one", 1), pod)
			state := f.begin(pod)
			for _, step := range []*fwk.Status{
				f.Filter(f.Context(), state, pod, f.node), f.Reserve(f.Context(), state, pod, "n1"),
				f.PreBind(f.Context(), state, pod, "n1"),
			} {
				if !step.IsSuccess() {
					t.Fatal(step)
				}
			}
			get := func() *resourceapi.ResourceClaim {
				claims := f.client.ResourceV1().ResourceClaims("default")
				found, err := claims.Get(f.Context(), "one", metav1.GetOptions{})
				f.must(err)
				return found
			}
			written := get()
			if written.Status.Allocation == nil || len(written.Status.ReservedFor) != 1 {
				t.Fatalf("PreBind wrote %+v", written.Status)
			}
			test.meanwhile(f, written)
			f.Unreserve(f.Context(), state, pod, "n1")
			after := get()
			if (after.Status.Allocation != nil) != test.keeps {
				t.Errorf("it has %+v", after.Status)
			}
			if !test.keeps && len(after.Status.ReservedFor) > 0 {
				t.Errorf("it is reserved for %+v", after.Status.ReservedFor)
			}
		})
	}
}

func TestTheViewEndsWithItsUse(t *testing.T) {
	f := newFixture(t, nil, claim("one", 1))
	f.manager.during(&view{}, func() {
		if seen, err := f.manager.ResourceSlices().ListWithDeviceTaintRules(); err != nil || len(seen) > 0 {
			t.Errorf("the view has slices: %v, %v", seen, err)
		}
	})
	if seen, err := f.manager.ResourceSlices().ListWithDeviceTaintRules(); err != nil || len(seen) != 1 {
		t.Errorf("afterwards: %v, %v", seen, err)
	}
}
