// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const driver = "gpu.example.com"

// cluster is what a ledger reads.
type cluster struct {
	fwk.SharedDRAManager
	fwk.ResourceClaimTracker
	*testing.T
	*Ledger
	slices []*resourceapi.ResourceSlice
	claims sets.Set[structured.DeviceID]
	held   map[string][]sdk.ResourceName // by node
	busy   bool                          // claims change while they are read
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{
		T: t, claims: sets.New[structured.DeviceID](), held: map[string][]sdk.ResourceName{},
	}
	c.restart()
	return c
}

// restart makes a ledger that knows nothing of the time before.
func (c *cluster) restart() { c.Ledger = New(c, c) }

func (c *cluster) ResourceSlices() fwk.ResourceSliceLister     { return c }
func (c *cluster) ResourceClaims() fwk.ResourceClaimTracker    { return c }
func (c *cluster) HeldNames(node string) []sdk.ResourceName    { return c.held[node] }
func (c *cluster) List() ([]*resourceapi.ResourceClaim, error) { return nil, errors.ErrUnsupported }
func (c *cluster) ListWithDeviceTaintRules() ([]*resourceapi.ResourceSlice, error) {
	return slices.Clone(c.slices), nil
}
func (c *cluster) GatherAllocatedState() (*structured.AllocatedState, error) {
	if c.busy {
		return nil, errors.New("conflicting concurrent modification")
	}
	return &structured.AllocatedState{AllocatedDevices: c.claims.Clone()}, nil
}

// lists makes a node list devices, see listing, and returns those of them that claims have.
func (c *cluster) lists(
	name string, attributes map[string]device.Attributes, devices ...sdk.ResourceName,
) map[string]bool {
	c.Helper()
	node := c.listing(name, attributes, devices...)
	claimed := c.Claimed(node)
	c.InUse(node)
	return claimed
}

// listing returns a node that lists devices, by the names of resources, with these attributes.
func (c *cluster) listing(name string, attributes map[string]device.Attributes, devices ...sdk.ResourceName) *v1.Node {
	c.Helper()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	if len(devices) > 0 {
		info := sdk.NewNodeInfoWithName(name)
		for _, resource := range devices {
			info.Capacity[resource] = 1
		}
		value, err := deviceinfo.EncodeNode(info)
		if err != nil {
			c.Fatal(err)
		}
		node.Annotations[deviceinfo.Annotation] = value
		node.Annotations[deviceinfo.AttributesAnnotation], _ = deviceinfo.EncodeAttributes(attributes,
			deviceinfo.MaxAttributesBytes)
	}
	return node
}

// attributes are those of a device in a slice, all texts.
type attributes map[resourceapi.QualifiedName]string

// publishes replaces what a driver publishes of a node, "" for none: devices by their names.
func (c *cluster) publishes(node string, devices map[string]attributes) {
	c.slices = slices.DeleteFunc(slices.Clone(c.slices), func(s *resourceapi.ResourceSlice) bool {
		return s.Name == "of-"+node
	})
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "of-" + node},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, Pool: resourceapi.ResourcePool{Name: "of-" + node, ResourceSliceCount: 1},
		},
	}
	if node == "" {
		slice.Spec.AllNodes = ptr.To(true)
	} else {
		slice.Spec.NodeName = &node
	}
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		published := resourceapi.Device{
			Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{},
		}
		for key, text := range devices[name] {
			published.Attributes[key] = resourceapi.DeviceAttribute{StringValue: ptr.To(text)}
		}
		slice.Spec.Devices = append(slice.Spec.Devices, published)
	}
	if len(devices) > 0 {
		c.slices = append(c.slices, slice)
	}
	c.SlicesChanged()
}

// pathOf returns the path of the device that has a resource, as in annotations.
func pathOf(name sdk.ResourceName) string { return deviceinfo.DevicePath(path.Dir(string(name))) }

func id(node, name string) structured.DeviceID {
	return structured.MakeDeviceID(driver, "of-"+node, name)
}

// ours returns the published devices that are KubeDevice's.
func (c *cluster) ours() []string {
	c.Helper()
	found, err := c.Ours(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	var all []string
	for id := range found {
		all = append(all, id.String())
	}
	slices.Sort(all)
	return all
}

func (c *cluster) want(what string, got, want any) {
	c.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		c.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

const (
	uuid    = "GPU-1b7f4d7e-22aa-4f3c-9d3f-0f5a6c1e2d3b"
	part    = "MIG-8e1c64a2-1f00-5a2b-8c9d-2b3c4d5e6f70"
	another = "GPU-00000000-22aa-4f3c-9d3f-0f5a6c1e2d3b"
)

func TestTwoNamesAreOfOneDeviceByItsUUIDOrAddress(t *testing.T) {
	const standard = "resource.kubernetes.io/pciBusID"
	for name, test := range map[string]struct {
		listed    sdk.ResourceName
		described device.Attributes
		published attributes
		same      bool
	}{
		"the ID is the UUID": {"gpu/" + uuid + "/cards", nil, attributes{"uuid": uuid}, true},
		"in another spelling": {
			"gpu/" + uuid + "/cards", nil, attributes{driver + "/uuid": "gpu" + uuid[3:]}, true,
		},
		"another UUID":              {"gpu/" + uuid + "/cards", nil, attributes{"uuid": another}, false},
		"the uuid of other domains": {"gpu/" + uuid + "/cards", nil, attributes{"example.org/uuid": uuid}, false},
		"a share of a device plugin's": {
			"numa/0/nvidia.com:gpu/" + uuid + "::2/device", nil, attributes{"uuid": uuid}, true,
		},
		"the ID is an address": {
			"numa/none/intel.com:qat/0000:3D:01.0/device", nil, attributes{standard: "0000:3d:01.0"}, true,
		},
		"an attribute is the UUID": {
			"gpu/0/cards", device.Attributes{"uuid": device.String(uuid)}, attributes{"uuid": uuid}, true,
		},
		"an attribute is the address": {
			"gpu/0/cards", device.Attributes{standard: device.String("0000:01:00.0")},
			attributes{"pciBusID": "00000000:01:00.0"}, true,
		},
		"another domain's address": {
			"gpu/0/cards", device.Attributes{standard: device.String("0000:01:00.0")},
			attributes{standard: "0001:01:00.0"}, false,
		},
		"a part of a listed GPU": {
			"gpu/" + uuid + "/cards", nil, attributes{"uuid": part, "parentUUID": uuid}, true,
		},
		"the GPU of a listed part": {
			"gpu/" + uuid + "/mig/" + part + "/memory", nil, attributes{"uuid": uuid}, true,
		},
		"an address is no UUID":     {"gpu/0000:01:00.0/cards", nil, attributes{"uuid": "x", standard: "y"}, false},
		"a group's number is no ID": {"gpugrp0/1/gpu/a/cards", nil, attributes{"uuid": "1"}, false},
		"the ID is a name":          {"gpu/gpu-a/cards", nil, attributes{"uuid": "gpu-a"}, true},
		"nothing identifies it":     {"gpu/0/cards", nil, attributes{"model": "x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			listed := "resource/group/" + test.listed
			node := c.listing("n", map[string]device.Attributes{pathOf(listed): test.described}, listed)
			c.Claimed(node)
			c.InUse(node)
			c.publishes("n", map[string]attributes{"dev": test.published})
			c.claims.Insert(id("n", "dev"))
			if got := len(c.ours()) > 0; got != test.same {
				t.Errorf("ours: %v, want %v", got, test.same)
			}
			if got := len(c.Claimed(node)) > 0; got != test.same {
				t.Errorf("claimed: %v, want %v", got, test.same)
			}
		})
	}
}

func TestADeviceOfAnotherNodeIsAnotherDevice(t *testing.T) {
	c := newCluster(t)
	c.lists("n1", nil, "resource/group/gpu/0000:01:00.0/cards", "resource/group/gpu/"+uuid+"/cards")
	c.publishes("n2", map[string]attributes{"pci": {"pciBusID": "0000:01:00.0"}, "uuid": {"uuid": uuid}})
	c.want("ours", c.ours(), []string(nil))
	c.publishes("", map[string]attributes{"pci": {"pciBusID": "0000:01:00.0"}, "uuid": {"uuid": uuid}})
	c.want("of those that belong to no node", c.ours(), []string{id("", "uuid").String()})
}

func TestNodesAreOutdatedWhenClaimsOfTheirDevicesChange(t *testing.T) {
	c := newCluster(t)
	node := c.listing("n", nil, "resource/group/gpu/"+uuid+"/cards")
	c.lists("other", nil, "resource/group/gpu/"+another+"/cards")
	outdated := func() []string { return c.Outdated(t.Context()) }
	c.want("with nothing published", outdated(), []string(nil))
	c.want("claimed", c.Claimed(node), map[string]bool(nil))
	c.claims.Insert(id("n", "dev"))
	c.publishes("n", map[string]attributes{"dev": {"uuid": uuid}})
	c.want("when a claimed device is published", outdated(), []string{"n"})
	c.want("claimed", c.Claimed(node), map[string]bool{"gpu/" + uuid: true})
	c.want("afterwards", outdated(), []string(nil))
	c.claims.Delete(id("n", "dev"))
	c.want("when it is deallocated", outdated(), []string{"n"})
	c.want("claimed", c.Claimed(node), map[string]bool(nil))
	c.busy = true
	c.want("when claims cannot be read", outdated(), []string{"n"})
	c.want("claimed", c.Claimed(node), map[string]bool{"gpu/" + uuid: true})
	c.busy = false
	c.want("when they can be again", outdated(), []string{"n"})
	c.Claimed(node)
	c.claims.Insert(id("n", "dev"))
	c.Claimed(node)
	c.publishes("n", nil)
	c.want("when the driver leaves and the claim stays", outdated(), []string(nil))
	c.claims.Delete(id("n", "dev"))
	c.want("when the claim goes, too", outdated(), []string{"n"})
}

func TestADeviceThatPodsHoldIsKubeDevicesThoughItsNodeListsItNoLonger(t *testing.T) {
	for name, test := range map[string]struct {
		resource  sdk.ResourceName
		described device.Attributes
	}{
		"the ID is its UUID":        {"resource/group/gpu/" + uuid + "/cards", nil},
		"an attribute was its UUID": {"resource/group/gpu/0/cards", device.Attributes{"uuid": device.String(uuid)}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.lists("n", map[string]device.Attributes{pathOf(test.resource): test.described}, test.resource)
			c.publishes("n", map[string]attributes{"dev": {"uuid": uuid}})
			mine := []string{id("n", "dev").String()}
			c.want("listed", c.ours(), mine)
			c.held["n"] = []sdk.ResourceName{test.resource}
			c.lists("n", nil)
			c.lists("n", nil, "resource/group/gpu/one/cards")
			c.lists("n", nil, "resource/group/gpu/two/cards")
			c.want("held", c.ours(), mine)
			c.lists("n", nil, "resource/group/gpu/three/cards")
			c.want("still held", c.ours(), mine)
			c.held["n"] = nil
			c.want("released", c.ours(), []string(nil))
		})
	}
}

// gpu is a device of the property's oracle, which knows what it is by any name.
type gpu struct {
	node, uuid, address string
	resource            sdk.ResourceName // its name in the inventory
	described           device.Attributes
	device              string // its name in slices
	published           attributes
	joined              bool // whether the names say that they are of one device
	mayLeave            bool // whether the inventory's name alone says as much

	lists, publishes bool
	pod, claim       bool // hold it
}

func newGPU(r *rand.Rand, node string, number int) *gpu {
	g := &gpu{
		node: node, uuid: fmt.Sprintf("GPU-%08x-%04x-4000-8000-%012x", r.Uint32(), r.IntN(1<<16), r.Uint32()),
		address: fmt.Sprintf("0000:%02x:00.0", number), device: fmt.Sprint("dev-", number),
	}
	byUUID, byAddress := false, false
	switch r.IntN(6) {
	case 0:
		g.resource, byUUID, g.mayLeave = sdk.ResourceName("resource/group/gpu/"+g.uuid+"/cards"), true, true
	case 1:
		g.resource = sdk.ResourceName(fmt.Sprintf("resource/group/numa/0/nvidia.com:gpu/%s::%d/device", g.uuid, number))
		byUUID, g.mayLeave = true, true
	case 2:
		g.resource = sdk.ResourceName("resource/group/numa/1/intel.com:qat/" + g.address + "/device")
		byAddress, g.mayLeave = true, true
	case 3:
		g.resource, byUUID = sdk.ResourceName(fmt.Sprintf("resource/group/slot/1/gpu/g%d/cards", number)), true
		g.described = device.Attributes{"uuid": device.String(g.uuid)}
	case 4:
		g.resource = sdk.ResourceName(fmt.Sprintf("resource/group/gpu/g%d/cards", number))
		g.described = device.Attributes{standardBusID: device.String(g.address)}
		byAddress = true
	default:
		g.resource = sdk.ResourceName(fmt.Sprintf("resource/group/gpu/g%d/cards", number))
	}
	switch r.IntN(5) {
	case 0:
		g.published, g.joined = attributes{"uuid": g.uuid}, byUUID
	case 1:
		g.published, g.joined = attributes{"uuid": part, "parentUUID": g.uuid}, byUUID
	case 2:
		g.published = attributes{standardBusID: "0000" + g.address}
		g.joined = byAddress
	case 3:
		g.published = attributes{driver + "/uuid": g.uuid, "pciBusID": g.address}
		g.joined = byUUID || byAddress
	default:
		g.published = attributes{"model": "x"}
	}
	return g
}

// TestNoDeviceIsHeldByBothWays has random devices come and go on both sides, and pods and claims
// take each that the ledger lets them have.
func TestNoDeviceIsHeldByBothWays(t *testing.T) {
	both, refused := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		c := newCluster(t)
		var gpus []*gpu
		for number := range 1 + r.IntN(6) {
			gpus = append(gpus, newGPU(r, []string{"n1", "n2"}[r.IntN(2)], number))
		}
		claimed := map[string]map[string]bool{}
		// renew writes what there is of a node. In the meantime, a scheduling cycle goes on that
		// began before, and may take a device for a pod.
		renew := func(node string, late *gpu) {
			var resources []sdk.ResourceName
			described := map[string]device.Attributes{}
			published := map[string]attributes{}
			hold := func() {
				c.held[node] = nil
				for _, g := range gpus {
					if g.node == node && g.pod {
						c.held[node] = append(c.held[node], g.resource)
					}
				}
			}
			for _, g := range gpus {
				if g.node == node && g.lists {
					resources = append(resources, g.resource)
					described[pathOf(g.resource)] = g.described
				}
				if g.node == node && g.publishes {
					published[g.device] = g.published
				}
			}
			hold()
			c.publishes(node, published)
			source := c.listing(node, described, resources...)
			claimed[node] = c.Claimed(source)
			if late != nil && r.IntN(2) == 0 {
				late.pod = true
				hold()
			}
			c.InUse(source)
			if late != nil {
				late.pod = true
				hold()
			}
		}
		sync := func() {
			for _, name := range c.Outdated(t.Context()) {
				renew(name, nil)
			}
		}
		isFree := func(g *gpu) bool { return !claimed[g.node][deviceinfo.TaintedDevice(pathOf(g.resource))] }
		for step := range 60 {
			g := gpus[r.IntN(len(gpus))]
			var late *gpu
			switch r.IntN(9) {
			case 0:
				g.lists = true
			case 1:
				if sync(); g.lists && isFree(g) && r.IntN(3) == 0 {
					late = g
				}
				g.lists = false
			case 2:
				g.publishes = true
			case 3:
				g.publishes = false
			case 4, 5:
				sync()
				free := isFree(g)
				refused += map[bool]int{!g.pod && g.lists && !free: 1}[true]
				g.pod = g.pod || g.lists && free
				if want := g.joined && g.claim; g.lists && free == want {
					t.Fatalf("seed %d, step %d: %+v: free for pods: %v", seed, step, g, free)
				}
			case 6:
				ours, err := c.Ours(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				mine := ours.Has(id(g.node, g.device))
				refused += map[bool]int{!g.claim && g.publishes && mine: 1}[true]
				if want := g.joined && (g.lists || g.pod); g.publishes && mine != want {
					t.Fatalf("seed %d, step %d: %+v: KubeDevice's: %v", seed, step, g, mine)
				}
				if g.publishes && !mine {
					g.claim = true
					c.claims.Insert(id(g.node, g.device))
				}
			case 7:
				g.pod, g.claim = g.pod && r.IntN(2) == 0, g.claim && r.IntN(2) == 0
				if !g.claim {
					c.claims.Delete(id(g.node, g.device))
				}
			default:
				forgets := func(g *gpu) bool { return g.claim && !g.publishes || g.pod && !g.lists && !g.mayLeave }
				if !slices.ContainsFunc(gpus, forgets) {
					c.restart()
					renew("n1", nil)
					renew("n2", nil)
				}
			}
			renew(g.node, late)
			if g.pod && g.claim {
				if both++; g.joined {
					t.Fatalf("seed %d, step %d: %+v is held by a pod and by a claim", seed, step, g)
				}
			}
		}
	}
	if both == 0 || refused == 0 {
		t.Errorf("%d devices without a second name known were held by both, and %d were refused", both, refused)
	}
}
