// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package firewall keeps containers from devices that they were not allocated.
//
// Container runtimes of device vendors, and CDI, add devices to a container because its image or
// its pod asks for them: by an environment variable, an annotation, a mount. None of that passes
// the scheduler. The firewall knows these ways for each vendor, and closes them on a node that has
// the vendor's devices:
//
//   - A variable is set to the value that asks for nothing, over the values of the image and of
//     the pod. What a device plugin sets for devices that the container was allocated stays.
//   - A container whose pod asks by an annotation or a mount, or that the kubelet gives a CDI
//     device which is allocated here, is refused: such things cannot be taken back by adding to a
//     request.
//
// The ways are built in for the vendors that have a runtime. A device plugin can add more. So it
// does not matter for a known vendor whether a plugin is loaded. What plugins added is kept in a
// state file, so that it also holds while one cannot be loaded.
//
// docs/device-firewall.md has the rules for users.
package firewall

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Way is how a container or its pod asks for devices.
type Way string

// The ways.
const (
	ByEnv        Way = "env"
	ByAnnotation Way = "annotation"
	ByMount      Way = "mount"
	ByCDI        Way = "cdi"
	ByRestore    Way = "restore"
)

// Attempt is one thing by which a container or its pod asks for devices past the scheduler.
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
	// Config is the container itself.
	Config *runtimeapi.ContainerConfig
	// Own reports whether the pod sets a variable of Config, or may: the others are the image's,
	// and no attempts of the pod. Nil if all are the pod's.
	Own func(variable string) bool
	// Requests are the extended resources that it requests.
	Requests []types.ResourceName
}

// Options configure a firewall.
type Options struct {
	// Plugins are the node's device plugins.
	Plugins Plugins
	// KubeletServes reports whether the kubelet itself allocates a resource that is one of those.
	KubeletServes func(ctx context.Context, is func(types.ResourceName) bool) bool
	// Exists reports whether there is a file at the path.
	Exists func(path string) bool
	// StateFile has what the plugins said last; empty means that it is not kept.
	StateFile string
}

// Firewall is set up once by New; its methods are then safe for concurrent use.
type Firewall struct {
	options Options
	memory  *memory
}

// New returns a firewall. Call Run, too.
func New(options Options) *Firewall {
	return &Firewall{options: options, memory: newMemory(options.StateFile)}
}

// Guard is what the firewall does for containers on a node at one moment.
type Guard struct {
	vendors []guarded
	serves  func(is func(types.ResourceName) bool) bool
	own     map[types.ResourceName]bool
}

// guarded is a vendor of whose devices the node has some.
type guarded struct {
	*vendor
	// managed says that they are allocated here.
	managed bool
}

// Guard returns what holds on the node for a container that holds the devices in from. own are the
// extended resources that are allocated here. It waits for device plugins that were never loaded
// before, and fails if they are not in time.
func (f *Firewall) Guard(
	ctx context.Context, own map[types.ResourceName]bool, from types.ResourceLocation,
) (*Guard, error) {
	g := &Guard{own: own, serves: func(is func(types.ResourceName) bool) bool {
		return f.options.KubeletServes(ctx, is)
	}}
	known := map[types.ResourceName]bool{}
	for _, v := range vendors {
		managed := false
		for name := range own {
			if v.owns(name) {
				managed, known[name] = true, true
			}
		}
		if managed || slices.ContainsFunc(v.files, f.options.Exists) && !g.serves(v.owns) {
			g.vendors = append(g.vendors, guarded{v, managed})
		}
	}
	var others []string
	for name := range own {
		if !known[name] {
			others = append(others, domainOf(name))
		}
	}
	slices.Sort(others)
	for _, domain := range slices.Compact(others) {
		g.vendors = append(g.vendors, guarded{
			&vendor{name: domain, cdiKinds: []string{domain + "/*", "*." + domain + "/*"}}, true,
		})
	}
	fromPlugins, err := f.memory.rules(ctx, f.options.Plugins, from)
	for _, v := range fromPlugins {
		g.vendors = append(g.vendors, guarded{v, true})
	}
	return g, err
}

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

// Refused returns the attempts that a container is refused for.
func (g *Guard) Refused(c Container) []Attempt {
	var attempts []Attempt
	for _, v := range g.vendors {
		if g.isKubelets(v, c) {
			continue
		}
		add := func(way Way, format string, args ...any) {
			attempts = append(attempts, Attempt{v.name, way, fmt.Sprintf(format, args...)})
		}
		for key, value := range c.PodAnnotations {
			if asked := v.askedBy(key, value, nil); asked != "" {
				add(ByAnnotation, "the annotation %s (%s) of the pod", key, asked)
			}
		}
		for _, mount := range c.Config.GetMounts() {
			if v.isList(mount.GetContainerPath()) {
				add(ByMount, "the mount at %s", mount.GetContainerPath())
			}
		}
		if !v.managed {
			continue
		}
		for key, value := range c.Config.GetAnnotations() {
			if asked := v.askedBy(key, value, v.otherKinds); asked != "" {
				add(ByCDI, "the CDI device %s from the kubelet", asked)
			}
		}
		for _, device := range c.Config.GetCDIDevices() {
			if name := device.GetName(); hasKind(v.cdiKinds, name) && !hasKind(v.otherKinds, name) {
				add(ByCDI, "the CDI device %s from the kubelet", name)
			}
		}
	}
	slices.SortFunc(attempts, func(a, b Attempt) int { return strings.Compare(a.Text, b.Text) })
	return slices.CompactFunc(attempts, func(a, b Attempt) bool { return a.Text == b.Text })
}

// Neutralise returns the variables to set in the container, beyond those that it is given, and the
// attempts of its own that this ends. allocated says that it was allocated devices.
func (g *Guard) Neutralise(
	c Container, given []*runtimeapi.KeyValue, allocated bool,
) (set []*runtimeapi.KeyValue, attempts []Attempt) {
	values := map[string]string{}
	isGiven := func(name string) bool {
		return slices.ContainsFunc(given, func(env *runtimeapi.KeyValue) bool { return env.GetKey() == name })
	}
	put := func(name, value string) {
		if _, first := values[name]; !first && !isGiven(name) {
			values[name] = value
			set = append(set, &runtimeapi.KeyValue{Key: name, Value: []byte(value)})
		}
	}
	for _, v := range g.vendors {
		if g.isKubelets(v, c) {
			continue
		}
		for _, known := range v.selects {
			put(known.name, known.nothing)
		}
		if allocated {
			for _, known := range v.extends {
				put(known.name, known.nothing)
			}
		}
		for _, env := range c.Config.GetEnvs() {
			nothing, is := v.overrides(env.GetKey())
			if !is || isGiven(env.GetKey()) || asksForNothing(string(env.GetValue()), nothing) {
				continue
			}
			put(env.GetKey(), nothing)
			if c.Own != nil && !c.Own(env.GetKey()) {
				continue
			}
			attempts = append(attempts, Attempt{v.name, ByEnv,
				fmt.Sprintf("the environment variable %s=%.64s", env.GetKey(), env.GetValue())})
		}
	}
	slices.SortFunc(set, func(a, b *runtimeapi.KeyValue) int { return strings.Compare(a.GetKey(), b.GetKey()) })
	return set, attempts
}

// Restored returns the attempt that the restore of a pod is: what its checkpoint has is not known.
func (g *Guard) Restored() Attempt {
	return Attempt{g.vendors[0].name, ByRestore, "its checkpoint"}
}

// isKubelets reports whether the kubelet allocates the vendor's devices that the container
// requests: then it has asked in the right way.
func (g *Guard) isKubelets(v guarded, c Container) bool {
	for _, name := range c.Requests {
		if v.owns(name) && !g.own[name] && g.serves(func(served types.ResourceName) bool { return served == name }) {
			return true
		}
	}
	return false
}

// asksForNothing reports whether no runtime takes the value for a device, or it is the one that
// would be set.
func asksForNothing(value, nothing string) bool {
	return value == nothing || value == "" || value == "none" || value == "void"
}

// The annotations by which a pod names CDI devices. Vendors put a word of their own before the
// domain.
const cdiDomain = "cdi.k8s.io"

// criODevices are the annotations by which a pod names device files, where CRI-O's configuration
// allows that.
var criODevices = []string{"io.kubernetes.cri-o.Devices", "devices.crio.io"}

// askedBy returns which of the vendor's devices an annotation asks for, or "". CDI devices of the
// kinds in except do not count.
func (v *vendor) askedBy(key, value string, except []string) string {
	domain, _, _ := strings.Cut(key, "/")
	switch {
	case domain == cdiDomain || strings.HasSuffix(domain, "."+cdiDomain):
		for name := range strings.SplitSeq(value, ",") {
			if name = strings.TrimSpace(name); name == "" {
				continue // of others that may follow
			}
			// A name without a kind is taken for a device of the vendor whose runtime reads it.
			isBare := len(v.cdiKinds) > 0 && !strings.Contains(name, "=")
			if isBare || hasKind(v.cdiKinds, name) && !hasKind(except, name) {
				return name
			}
		}
	case slices.Contains(criODevices, domain):
		for device := range strings.SplitSeq(value, ",") {
			host, _, _ := strings.Cut(strings.TrimSpace(device), ":")
			if slices.ContainsFunc(v.files, func(file string) bool {
				return strings.HasPrefix(path.Clean(host), strings.TrimRight(file, "0"))
			}) {
				return host
			}
		}
	}
	return ""
}

// isList reports whether a mount at the path names one of the vendor's devices.
func (v *vendor) isList(containerPath string) bool {
	clean := path.Clean(containerPath)
	return slices.ContainsFunc(v.mountPaths, func(start string) bool { return strings.HasPrefix(clean, start) })
}
