// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package firewall keeps containers from devices that they were not allocated.
//
// Container runtimes of device vendors, and CDI, add devices to a container because its image or
// its pod requests them: by an environment variable, an annotation, a mount. None of that passes
// the scheduler. The firewall knows these ways for each vendor, and closes them on a node that has
// the vendor's devices:
//
//   - A variable that the vendor's runtime would obey is set to the value that requests nothing,
//     over the values of the image and of the pod. What a device plugin sets for devices that the
//     container was allocated stays. Where the value of image or pod would win, the container is
//     refused.
//   - A container whose pod requests devices by an annotation or a mount, or that the kubelet gives
//     a CDI device which is allocated here, is refused: such things cannot be taken back by adding
//     to a request.
//
// What a plugin that is registered with the kubelet gave the container, for a resource that is not
// managed here, stays, and nothing else of the same vendor does.
//
// The ways are built in for the vendors that have a runtime. A device plugin can add more, and so
// can the node's configuration. So it does not matter for a known vendor whether a plugin is
// loaded. What plugins added is kept in a state file, so that it also holds while one cannot be
// loaded.
//
// docs/use/device-firewall.md has the rules for users.
package firewall

import (
	"context"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Way is how a container or its pod requests devices.
type Way string

// The ways.
const (
	ByEnv        Way = "env"
	ByAnnotation Way = "annotation"
	ByMount      Way = "mount"
	ByCDI        Way = "cdi"
	ByRestore    Way = "restore"
)

// Attempt is one thing by which a container or its pod requests devices without the scheduler.
type Attempt struct {
	// Vendor is the domain of the vendor, or the name of the device plugin that knows the way.
	Vendor string
	Way    Way
	// Text describes the thing for people.
	Text string
}

// Container is a container that is about to be created, as the kubelet describes it.
type Container struct {
	// PodAnnotations are the annotations of its pod.
	PodAnnotations map[string]string
	// SandboxAnnotations are those that its sandbox was created with, which runtimes read, too: the
	// pod's may have changed since.
	SandboxAnnotations map[string]string
	// Config is the container itself, its variables in their order.
	Config *runtimeapi.ContainerConfig
	// Image are variables of its image that are not in Config, which come before those; empty where
	// they are not known, see Guard.NeedsImage.
	Image []*runtimeapi.KeyValue
	// ImageVolumes are the paths of its image's volumes, where mounts of Config do not show them.
	ImageVolumes []string
	// Adjusted says that Config has the variables of the image, too, as NRI shows them, and that
	// variables are set by an adjustment of NRI's. Otherwise they are added to the kubelet's
	// request.
	Adjusted bool
	// Own are the variables of Config that the pod sets, or may: the others are the image's, and no
	// attempts of the pod. Nil if all are the pod's.
	Own Variables
	// Created is when the runtime created it; the zero time where that is not known, or to come.
	Created time.Time
	// Kubelet is what plugins that are registered with the kubelet gave it, for resources that are
	// not managed here, or before they were.
	Kubelet []KubeletInjection
	// Claimed are the drivers that have prepared CDI devices for claims of its pod, by the device;
	// see Guard.NeedsClaims. The pod's are enough: only devices in the field CDIDevices of Config
	// are compared with them, and there the kubelet alone writes. It writes what was prepared for
	// the claims that this container names (kubernetes, pkg/kubelet/cm/dra/manager.go,
	// GetResources), and NRI shows that field (containerd, internal/cri/nri/nri_api_linux.go,
	// GetCDIDevices). What a pod names in a variable, an annotation or a mount, no claim permits.
	Claimed map[string]string
}

// Variables are environment variables. pods.Variables implements it.
type Variables interface {
	// Sets reports whether the variable is one of them, or may be.
	Sets(variable string) bool
}

// KubeletInjection is what a device plugin that is registered with the kubelet gave a container for
// a resource.
type KubeletInjection struct {
	Resource    types.ResourceName
	Envs        map[string]string
	Annotations map[string]string
	// Mounts are their paths in the container.
	Mounts     []string
	CDIDevices []string
}

// Kubelet is the node's kubelet. *devicemanager.Manager implements it.
type Kubelet interface {
	// KubeletServes reports whether the kubelet itself allocates a resource for which is returns
	// true.
	KubeletServes(ctx context.Context, is func(types.ResourceName) bool) bool
}

// Options configure a firewall.
type Options struct {
	// Plugins are the node's device plugins.
	Plugins Plugins
	// Vendors are vendors that are not built in, and further drivers of those that are.
	Vendors []Vendor
	// Kubelet is the node's kubelet.
	Kubelet Kubelet
	// Files are the device files of the node.
	Files DeviceFiles
	// StateFile has what the plugins said last; empty means that it is not kept.
	StateFile string
}

// Firewall is set up once by New; its methods are then safe for concurrent use.
type Firewall struct {
	options Options
	vendors []*vendor // built in and declared
	memory  *memory
}

// New returns a firewall. Call Run, too.
func New(options Options) *Firewall {
	return &Firewall{
		options: options, vendors: withDeclared(options.Vendors), memory: newMemory(options.StateFile),
	}
}

// withDeclared returns the vendors that are built in, and then the declared ones.
func withDeclared(declared []Vendor) []*vendor {
	all := slices.Clone(vendors)
	for _, d := range declared {
		v := d.vendor()
		if at := indexOf(vendors, d.Name); at >= 0 {
			more := *vendors[at]
			more.otherDrivers = slices.Concat(more.otherDrivers, d.OtherDrivers)
			all[at] = &more
			continue
		}
		if len(v.cdiKinds) == 0 {
			v.cdiKinds = kindsOf(v.name)
		}
		v.unlisted = len(v.devices) == 0
		all = append(all, v)
	}
	return all
}

// Guard is what the firewall does for containers on a node at one time.
type Guard struct {
	firewall    *Firewall
	vendors     []guarded // those of the node, and then those that plugins say
	nodeVendors int       // how many are of the node
	// anyKind are vendors that are not guarded, as the kubelet allocates their devices or there are
	// none, and whose runtimes add devices of any vendor.
	anyKind []*vendor
}

// guarded is a vendor of whose devices the node has some.
type guarded struct {
	*vendor
	// managed says that they are allocated here.
	managed bool
	// undeclared says that nothing is known of the vendor but the domain of its resources.
	undeclared bool
}

// Guard returns what holds on the node for a container that holds no devices. own are the extended
// resources that are allocated here. It waits for device plugins that were never loaded before, and
// fails if they are not in time.
func (f *Firewall) Guard(ctx context.Context, own map[types.ResourceName]bool) (*Guard, error) {
	g := &Guard{firewall: f}
	owned := map[types.ResourceName]bool{}
	for _, v := range f.vendors {
		managed := false
		for name := range own {
			if v.owns(name) {
				managed, owned[name] = true, true
			}
		}
		there := slices.ContainsFunc(v.files, f.has)
		switch {
		case managed || there && !f.options.Kubelet.KubeletServes(ctx, v.owns):
			g.vendors = append(g.vendors, guarded{vendor: v, managed: managed})
		case v.anyKind: // also without its devices: its runtime may be on each node
			g.anyKind = append(g.anyKind, v)
		}
	}
	var others []string
	for name := range own {
		if !owned[name] {
			others = append(others, domainOf(name))
		}
	}
	slices.Sort(others)
	others = slices.Compact(others)
	for _, name := range others {
		g.vendors = append(g.vendors, guarded{
			vendor: &vendor{name: name, cdiKinds: kindsOf(name), unlisted: true}, managed: true, undeclared: true,
		})
	}
	g.nodeVendors = len(g.vendors)
	return g.Holding(ctx, nil)
}

// Holding returns the guard for a container that holds the devices in from, which make a difference
// to some rules of plugins. It fails as Firewall.Guard does.
func (g *Guard) Holding(ctx context.Context, from types.ResourceLocation) (*Guard, error) {
	held := *g
	held.vendors = slices.Clip(g.vendors[:g.nodeVendors])
	fromPlugins, err := g.firewall.memory.rules(ctx, g.firewall.options.Plugins, from)
	for _, v := range fromPlugins {
		held.vendors = append(held.vendors, guarded{vendor: v, managed: true})
	}
	var kinds []string
	for _, v := range held.vendors {
		kinds = append(kinds, v.cdiKinds...)
	}
	if len(kinds) > 0 {
		for _, v := range g.anyKind {
			held.vendors = append(held.vendors, guarded{vendor: v.foreign(kinds)})
		}
	}
	return &held, err
}

// kindsOf returns the kinds of CDI devices of a vendor of which only the domain is known.
func kindsOf(domain string) []string { return []string{domain + "/*", "*." + domain + "/*"} }

// Active reports whether there is anything to guard.
func (g *Guard) Active() bool { return len(g.vendors) > 0 }

// Vendors returns the names of the vendors that are guarded, for people.
func (g *Guard) Vendors() string {
	var names []string
	for _, v := range g.vendors {
		names = append(names, v.name)
	}
	return strings.Join(names, ", ")
}

// Restored returns the attempt that the restore of a pod is: what its checkpoint has is not known.
func (g *Guard) Restored() Attempt {
	return Attempt{g.vendors[0].name, ByRestore, "its checkpoint"}
}
