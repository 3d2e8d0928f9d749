// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"math/rand/v2"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
)

// random is a random cluster, and claims of one pod.
type random struct {
	*rand.Rand
	nodes     []*v1.Node
	slices    []*resourceapi.ResourceSlice
	allocated sets.Set[structured.DeviceID]
	classes   classes
	claims    []*resourceapi.ResourceClaim
}

// classes are device classes by name.
type classes map[string]*resourceapi.DeviceClass

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class := c[name]; class != nil {
		return class, nil
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclasses"), name)
}

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }

const (
	gpus = "gpu.example.com"
	nics = "nic.example.com"
)

// chance is true in one of n cases.
func (r *random) chance(n int) bool { return r.IntN(n) == 0 }

func pick[T any](r *random, values ...T) T { return values[r.IntN(len(values))] }

func newRandom(seed uint64) *random {
	r := &random{
		Rand: rand.New(rand.NewPCG(seed, 0)), allocated: sets.New[structured.DeviceID](), classes: classes{},
	}
	for i := range 1 + r.IntN(2) {
		r.nodes = append(r.nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("node-%d", i), Labels: map[string]string{"zone": pick(r, "a", "b")},
		}})
	}
	for _, node := range r.nodes {
		for _, driver := range []string{gpus, nics} {
			for i := range 1 + r.IntN(1+r.IntN(2)) {
				r.pool(driver, fmt.Sprintf("%s-%d", node.Name, i), node.Name)
			}
		}
	}
	if r.chance(4) {
		r.pool(gpus, "shared", "")
	}
	r.Shuffle(len(r.slices), func(i, j int) { r.slices[i], r.slices[j] = r.slices[j], r.slices[i] })
	for name, expressions := range map[string][]string{
		"gpu": {`device.driver == "` + gpus + `"`}, "nic": {`device.driver == "` + nics + `"`},
		"large": {`device.driver == "` + gpus + `"`,
			`device.capacity["` + gpus + `"].memory.compareTo(quantity("40Gi")) >= 0`},
		"any": nil,
		"red": {`device.attributes["` + gpus + `"].?color.orValue("") == "red"`},
	} {
		class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, expression := range expressions {
			class.Spec.Selectors = append(class.Spec.Selectors, selectorOf(expression))
		}
		r.classes[name] = class
	}
	for i := range 1 + r.IntN(1+r.IntN(3)) {
		r.claims = append(r.claims, r.claim(i))
	}
	return r
}

func selectorOf(expression string) resourceapi.DeviceSelector {
	return resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}
}

// pool adds a pool of a node, or one that several nodes can reach.
func (r *random) pool(driver, name, node string) {
	devices := 1 + r.IntN(8)
	spread := 1 + r.IntN(2)
	pool := resourceapi.ResourcePool{Name: name, Generation: int64(r.IntN(2)), ResourceSliceCount: int64(spread)}
	made := make([]*resourceapi.ResourceSlice, spread)
	perDevice := node == "" && r.chance(3)
	for i := range made {
		made[i] = &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-%d", name, driver, r.IntN(1000)*10+i)},
			Spec:       resourceapi.ResourceSliceSpec{Driver: driver, Pool: pool},
		}
		spec := &made[i].Spec
		switch {
		case node != "":
			spec.NodeName = &node
		case perDevice:
			spec.PerDeviceNodeSelection = ptr.To(true)
		case r.chance(2):
			spec.AllNodes = ptr.To(true)
		default:
			spec.NodeSelector = zone("a")
		}
	}
	odd := r.IntN(30) // mostly nothing
	for i := range devices {
		device := r.device(driver, i, devices)
		switch {
		case !perDevice:
		case r.chance(3):
			device.AllNodes = ptr.To(true)
		case r.chance(2):
			device.NodeSelector = zone("b")
		default:
			device.NodeName = ptr.To("node-0")
		}
		slice := made[r.IntN(spread)]
		switch odd {
		case 0:
			device.AllowMultipleAllocations = ptr.To(true)
		case 1:
			device.BindingConditions, device.BindingFailureConditions = []string{"ready"}, []string{"failed"}
		}
		slice.Spec.Devices = append(slice.Spec.Devices, device)
		if r.chance(4) {
			r.allocated.Insert(structured.MakeDeviceID(driver, name, device.Name))
		}
	}
	switch odd {
	case 2:
		for _, slice := range made {
			slice.Spec.Pool.ResourceSliceCount++
		}
	case 3: // one that the next generation replaces
		old := made[0].DeepCopy()
		old.Name += "-old"
		old.Spec.Pool.Generation--
		made = append(made, old)
	case 4:
		if first := made[0].Spec.Devices; len(first) > 0 {
			made[0].Spec.Devices = append(first, first[0])
		}
	}
	r.slices = append(r.slices, made...)
}

func zone(name string) *v1.NodeSelector {
	return &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{
		Key: "zone", Operator: v1.NodeSelectorOpIn, Values: []string{name},
	}}}}}
}

// device returns the device of that number, of so many.
func (r *random) device(driver string, i, of int) resourceapi.Device {
	device := resourceapi.Device{
		Name: fmt.Sprintf("dev-%d", i),
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"uuid":  {StringValue: ptr.To(fmt.Sprintf("%s-%d", driver, r.Uint64()))},
			"color": {StringValue: ptr.To(pick(r, "red", "green"))},
		},
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			"memory": {Value: resource.MustParse(pick(r, "20Gi", "40Gi", "80Gi"))},
		},
	}
	if !r.chance(12) {
		// Devices come in pairs, and pairs in sockets; their order says nothing of it.
		place := r.IntN(of)
		device.Attributes["resource.kubernetes.io/pcieRoot"] = resourceapi.DeviceAttribute{
			StringValue: ptr.To(fmt.Sprintf("pci0000:%02x", place/2)),
		}
		device.Attributes["resource.kubernetes.io/numaNode"] = resourceapi.DeviceAttribute{
			IntValue: ptr.To(int64(place / 4)),
		}
	}
	if r.chance(3) {
		device.Attributes["version"] = resourceapi.DeviceAttribute{VersionValue: ptr.To(pick(r, "1.0.0", "2.0.0"))}
		device.Attributes[resourceapi.QualifiedName(driver+"/fast")] = resourceapi.DeviceAttribute{
			BoolValue: ptr.To(r.chance(2)),
		}
	}
	if r.chance(12) {
		device.Taints = []resourceapi.DeviceTaint{{
			Key: "unhealthy", Value: "yes", Effect: pick(r, resourceapi.DeviceTaintEffectNoSchedule,
				resourceapi.DeviceTaintEffectNoExecute, resourceapi.DeviceTaintEffectNone),
		}}
	}
	return device
}

func (r *random) claim(number int) *resourceapi.ResourceClaim {
	name := fmt.Sprintf("claim-%d", number)
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(name),
	}}
	var names []string
	for i := range 1 + r.IntN(1+r.IntN(3)) {
		request := resourceapi.DeviceRequest{Name: fmt.Sprintf("req-%d", i)}
		names = append(names, request.Name)
		if r.chance(3) {
			for j := range 1 + r.IntN(3) {
				exact := r.exact()
				sub := resourceapi.DeviceSubRequest{
					Name: fmt.Sprintf("sub-%d", j), DeviceClassName: exact.DeviceClassName, Selectors: exact.Selectors,
					AllocationMode: exact.AllocationMode, Count: exact.Count, Tolerations: exact.Tolerations,
				}
				request.FirstAvailable = append(request.FirstAvailable, sub)
				names = append(names, request.Name+"/"+sub.Name)
			}
		} else {
			request.Exactly = r.exact()
			request.Exactly.AdminAccess = ptr.To(r.chance(15))
		}
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, request)
	}
	for range r.IntN(1 + r.IntN(3)) {
		attribute := pick(r, resourceapi.FullyQualifiedName("resource.kubernetes.io/pcieRoot"),
			"resource.kubernetes.io/numaNode", gpus+"/color", gpus+"/version", gpus+"/fast")
		var constraint resourceapi.DeviceConstraint
		if r.chance(3) {
			constraint.DistinctAttribute = &attribute
		} else {
			constraint.MatchAttribute = &attribute
		}
		for _, name := range names {
			if r.chance(2) {
				constraint.Requests = append(constraint.Requests, name)
			}
		}
		claim.Spec.Devices.Constraints = append(claim.Spec.Devices.Constraints, constraint)
	}
	return claim
}

func (r *random) exact() *resourceapi.ExactDeviceRequest {
	exact := &resourceapi.ExactDeviceRequest{
		DeviceClassName: pick(r, "gpu", "gpu", "gpu", "nic", "large", "red", "any"),
		AllocationMode:  resourceapi.DeviceAllocationModeExactCount, Count: int64(1 + r.IntN(3)),
	}
	if r.chance(10) {
		exact.AllocationMode, exact.Count = resourceapi.DeviceAllocationModeAll, 0
	}
	if r.chance(4) {
		exact.Selectors = append(exact.Selectors, selectorOf(pick(r,
			`device.attributes["`+gpus+`"].?color.orValue("") == "green"`,
			`cel.bind(own, device.attributes["`+gpus+`"], "color" in own && own.color == "red")`,
			`device.capacity[device.driver].memory.isGreaterThan(quantity("20Gi"))`,
			`device.attributes["`+gpus+`"].version.isGreaterThan(semver("1.0.0"))`, // fails without the attribute
		)))
	}
	if r.chance(4) {
		exact.Tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
	}
	return exact
}
