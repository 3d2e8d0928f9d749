// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Driver is what a DRA driver publishes in ResourceSlices.
type Driver struct {
	metav1.TypeMeta `json:",inline"`
	Name            string `json:"name"`
	// Nodes is how many nodes have slices of their own.
	Nodes   int `json:"nodes"`
	Devices int `json:"devices"`
	// Allocated is how many of the devices claims have, without administrative access.
	Allocated int `json:"allocated"`
	// CloseBy are the attributes by which devices are close unless claimLevels names others. There
	// are none if the driver publishes nothing of how devices are connected: claims get the first
	// devices that fit.
	CloseBy []string `json:"closeBy"`
	// Unidentified is how many devices have neither a UUID nor a PCI address: if KubeDevice has one
	// of them, too, it may be allocated twice.
	Unidentified int `json:"unidentified,omitempty"`
	// LeftToUpstream are the features because of which upstream's allocator chooses, with how many
	// pools have them.
	LeftToUpstream map[string]int `json:"leftToUpstream,omitempty"`
	// Attributes are the names of all attributes, those of the driver's own without a domain.
	Attributes []string `json:"attributes"`
}

// DriverList is several drivers.
type DriverList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []*Driver `json:"items"`
}

// closeness are the attributes of the scheduler's default claimLevels.
var closeness = []string{"resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode"}

// identifying are attributes by which the scheduler recognizes a device that KubeDevice has.
var identifying = []string{
	"uuid", "parentUUID", "resource.kubernetes.io/pciBusID", "pciBusID", "pcieBusID", "pciAddress", "pciAddr",
}

// The features that the scheduler leaves to upstream's allocator.
const (
	sharedCounters     = "shared counters"
	consumableCapacity = "consumable capacity"
	bindingConditions  = "binding conditions"
)

// driverBuilder collects the devices of a driver.
type driverBuilder struct {
	*Driver
	nodes, attributes map[string]bool
	features          map[string]map[string]bool // pools by feature
}

// NewDriverList returns the drivers of all slices and claims of the cluster, in the order of their
// names.
func NewDriverList(published []resourceapi.ResourceSlice, claims []resourceapi.ResourceClaim) *DriverList {
	drivers := map[string]*driverBuilder{}
	newest := map[[2]string]int64{}
	for i := range published {
		spec := &published[i].Spec
		pool := [2]string{spec.Driver, spec.Pool.Name}
		newest[pool] = max(newest[pool], spec.Pool.Generation)
	}
	for i := range published {
		spec := &published[i].Spec
		b := drivers[spec.Driver]
		if b == nil {
			b = &driverBuilder{
				Driver: &Driver{TypeMeta: TypeMeta("Driver"), Name: spec.Driver},
				nodes:  map[string]bool{}, attributes: map[string]bool{}, features: map[string]map[string]bool{},
			}
			drivers[spec.Driver] = b
		}
		if spec.Pool.Generation == newest[[2]string{spec.Driver, spec.Pool.Name}] {
			b.add(spec)
		}
	}
	for i := range claims {
		if allocation := claims[i].Status.Allocation; allocation != nil {
			for _, result := range allocation.Devices.Results {
				if b := drivers[result.Driver]; b != nil && !ptr.Deref(result.AdminAccess, false) {
					b.Allocated++
				}
			}
		}
	}
	list := &DriverList{TypeMeta: TypeMeta("DriverList"), Items: []*Driver{}}
	for _, name := range slices.Sorted(maps.Keys(drivers)) {
		list.Items = append(list.Items, drivers[name].complete())
	}
	return list
}

// add adds the devices of a slice.
func (b *driverBuilder) add(spec *resourceapi.ResourceSliceSpec) {
	if spec.NodeName != nil {
		b.nodes[*spec.NodeName] = true
	}
	feature := func(name string, has bool) {
		if !has {
			return
		}
		if b.features[name] == nil {
			b.features[name] = map[string]bool{}
		}
		b.features[name][spec.Pool.Name] = true
	}
	feature(sharedCounters, len(spec.SharedCounters) > 0)
	for i := range spec.Devices {
		device := &spec.Devices[i]
		b.Devices++
		identified := false
		for name := range device.Attributes {
			short := strings.TrimPrefix(string(name), spec.Driver+"/")
			b.attributes[short] = true
			identified = identified || slices.Contains(identifying, short)
		}
		if !identified {
			b.Unidentified++
		}
		feature(sharedCounters, len(device.ConsumesCounters) > 0)
		feature(consumableCapacity, ptr.Deref(device.AllowMultipleAllocations, false))
		feature(bindingConditions, len(device.BindingConditions) > 0)
	}
}

// complete returns the driver.
func (b *driverBuilder) complete() *Driver {
	b.Nodes = len(b.nodes)
	b.Attributes = append([]string{}, slices.Sorted(maps.Keys(b.attributes))...)
	b.CloseBy = []string{}
	for _, name := range closeness {
		if b.attributes[name] {
			b.CloseBy = append(b.CloseBy, name)
		}
	}
	for name, pools := range b.features {
		if b.LeftToUpstream == nil {
			b.LeftToUpstream = map[string]int{}
		}
		b.LeftToUpstream[name] = len(pools)
	}
	return b.Driver
}

// Features returns the features that are left to upstream's allocator, the most frequent first.
func (d *Driver) Features() []string {
	names := slices.Sorted(maps.Keys(d.LeftToUpstream))
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(d.LeftToUpstream[b], d.LeftToUpstream[a])
	})
	return names
}
