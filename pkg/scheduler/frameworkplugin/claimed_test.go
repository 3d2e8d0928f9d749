// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	gpuscheduler "github.com/kubedevice/kubedevice/plugins/gpu/scheduler"
)

// claims are the claims of a cluster whose driver publishes the GPU-0 of the node n as device a,
// and another one as b.
type claims struct {
	fwk.SharedDRAManager
	fwk.ResourceClaimTracker
	allocated sets.Set[structured.DeviceID]
	pending   string // the device that the claim is getting
	admin     bool
}

const draDriver = "gpu.example.com"

func (c *claims) ResourceClaims() fwk.ResourceClaimTracker { return c }
func (c *claims) ResourceSlices() fwk.ResourceSliceLister  { return c }
func (c *claims) ListWithDeviceTaintRules() ([]*resourceapi.ResourceSlice, error) {
	device := func(name, uuid string) resourceapi.Device {
		return resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"uuid": {StringValue: &uuid},
		}}
	}
	return []*resourceapi.ResourceSlice{{Spec: resourceapi.ResourceSliceSpec{
		Driver: draDriver, NodeName: ptr.To("n"), Pool: resourceapi.ResourcePool{Name: "n", ResourceSliceCount: 1},
		Devices: []resourceapi.Device{device("a", "GPU-0"), device("b", "elsewhere")},
	}}}, nil
}
func (c *claims) GatherAllocatedState() (*structured.AllocatedState, error) {
	return &structured.AllocatedState{AllocatedDevices: c.allocated.Clone()}, nil
}
func (c *claims) Get(namespace, name string) (*resourceapi.ResourceClaim, error) {
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(name),
	}}, nil
}
func (c *claims) GetPendingAllocation(types.UID) *resourceapi.AllocationResult {
	if c.pending == "" {
		return nil
	}
	return &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{
			Driver: draDriver, Pool: "n", Device: c.pending, AdminAccess: &c.admin,
		}},
	}}
}

func newClaims() *claims { return &claims{allocated: sets.New[structured.DeviceID]()} }

func newFixtureWithClaims(t *testing.T, c *claims, node *v1.Node, pods ...*v1.Pod) *fixture {
	return newFixtureAmong(t, c, Options{}, gpuscheduler.New("gpus", gpu.Resource), []*v1.Node{node}, pods...)
}

func TestDevicesThatClaimsHaveAreForNoPod(t *testing.T) {
	c := newClaims()
	f := newFixtureWithClaims(t, c, nodeWithFaults("n", "", ""))
	fits := func(when string, count int64, want bool) {
		t.Helper()
		if _, status := f.fit(newPod("p", count), "n"); status.IsSuccess() != want {
			t.Errorf("%s, a pod with %d GPUs: %v", when, count, status)
		}
	}
	fits("before a claim has one", 2, true)
	c.allocated.Insert(structured.MakeDeviceID(draDriver, "n", "a"), structured.MakeDeviceID(draDriver, "n", "b"))
	fits("with a claim", 1, true)
	pod := newPod("p", 2)
	_, status := f.fit(pod, "n")
	if got := status.Message(); !strings.Contains(got, "have 1 GPU that resource claims hold") {
		t.Errorf("the reason is %q", got)
	}
	tolerant := newPod("tolerant", 2)
	tolerant.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	if _, status := f.fit(tolerant, "n"); status.IsSuccess() {
		t.Error("a pod that tolerates all taints gets the device of a claim")
	}
	allocated := &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{
		Allocation: &resourceapi.AllocationResult{},
	}}
	if got := f.hints(fwk.ResourceClaim, []*v1.Pod{pod}, allocated, &resourceapi.ResourceClaim{}); got != 1 {
		t.Errorf("%d pods wake when a claim is deallocated", got)
	}
	c.allocated.Clear()
	fits("without the claim", 2, true)
}

func TestAClaimIsRefusedADeviceOfKubeDevices(t *testing.T) {
	for name, test := range map[string]struct {
		pending string
		admin   bool
		refused bool
	}{
		"a device that the node lists":   {"a", false, true},
		"as its administrator":           {"a", true, false},
		"another device":                 {"b", false, false},
		"one that it has had for a time": {"", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaims()
			c.pending, c.admin = test.pending, test.admin
			f := newFixtureWithClaims(t, c, nodeWithFaults("n", "", ""))
			pod := newPod("p", 0)
			pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "c", ResourceClaimName: ptr.To("c")}}
			_, status := f.framework.RunPermitPlugins(t.Context(), framework.NewCycleState(), pod, "n")
			if status.IsRejected() != test.refused || !test.refused && !status.IsSuccess() {
				t.Errorf("%v", status)
			}
		})
	}
}

func TestAPodWithoutClaimsIsPermittedAtNoCost(t *testing.T) {
	f := newFixtureWithClaims(t, newClaims(), nodeWithFaults("n", "", ""))
	pod := newPod("p", 1)
	if n := testing.AllocsPerRun(100, func() { f.plugin.Permit(t.Context(), nil, pod, "n") }); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
}

// Queueing hints may have been called before the plugin has the node's devices, or has lost the
// pod.
func TestPodsWithClaimsAreTriedAgainWhenADeviceIsKubeDevicesNoLonger(t *testing.T) {
	node := nodeWithFaults("n", "", "")
	held := annotated(assumed(newPod("held", 1), "n"), allocationOf("held", "n", "GPU-0"))
	pending := newPod("pending", 0)
	pending.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "c", ResourceClaimName: ptr.To("c")}}
	f := newFixtureWithClaims(t, newClaims(), node, held, pending)
	isActivated := func(when string) {
		t.Helper()
		await(t, "pods are activated", func() bool { f.clock.Step(requeueInterval); return len(f.activated) == 1 })
		if pods := <-f.activated; pods[string(pending.UID)] == nil {
			t.Errorf("when %s: %v", when, pods)
		}
	}
	f.delete(held)
	isActivated("a pod with devices is gone")
	relisted := changed(node, func(node *v1.Node) { delete(node.Annotations, deviceinfo.Annotation) })
	if _, err := f.client.CoreV1().Nodes().Update(t.Context(), relisted, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	isActivated("the node lists the device no longer")
}
