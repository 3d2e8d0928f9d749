// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// Form is a way to request devices.
type Form int

// The forms.
const (
	// Paths requests GPUs by placeholders in the annotation.
	Paths Form = iota
	// Counts requests devices by limits alone.
	Counts
	// Scattered is Counts of GPUs, each by itself.
	Scattered
	// Several requests several devices of one NUMA node with one entry of the annotation.
	Several
	// Each requests devices of NUMA nodes with an entry for each.
	Each
	// Named requests devices by their IDs, and excludes as many.
	Named

	forms
)

// String returns the form's name.
func (f Form) String() string {
	return [forms]string{"paths", "counts", "scattered", "several", "each", "named"}[f]
}

// Amount says how the quantities of one request differ from another's.
type Amount int

// The amounts.
const (
	// Equal are the same for all.
	Equal Amount = iota
	// Different are all different, and together about what is free.
	Different
	// Giant are as large as an int64 allows, all together.
	Giant

	amounts
)

// String returns the amount's name.
func (a Amount) String() string { return [amounts]string{"equal", "different", "giant"}[a] }

// Shape describes a pod.
type Shape struct {
	Machine Machine // that it is made for

	// How many containers request devices, by their kind, and how many request nothing.
	Regular, Sidecars, Inits, Idle int

	Form, Odd Form   // of the containers, and of each other one
	Devices   int    // that each container requests
	Groups    int    // placeholders of the innermost group that they are spread over
	Nested    int    // how many of the levels above a GPU are named: 0 to 2
	Plugins   int    // whose devices are requested, on machines without GPUs
	Amount    Amount // of a GPU's memory
	Cards     bool   // are requested with a GPU's memory
	Scored    bool   // by scorers of the pod's own
	Varied    bool   // each container requests something else
	Padding   int    // bytes by which placeholders are longer than they need be
}

// First returns the shape that a search begins with: an ordinary pod.
func First(machine Machine) Shape {
	return Shape{Machine: machine, Regular: 1, Form: Counts, Odd: Counts, Devices: 1, Groups: 1, Plugins: 1}
}

// Ordinary returns the shape that others are compared with: a pod for two devices.
func Ordinary(machine Machine) Shape {
	s := First(machine)
	s.Devices = 2
	return s
}

// String names what differs from an ordinary pod.
func (s Shape) String() string {
	text := fmt.Sprintf("%v: %d+%d+%d containers (regular, sidecars, init)",
		s.Machine, s.Regular, s.Sidecars, s.Inits)
	if s.Idle > 0 {
		text += fmt.Sprintf(" and %d idle", s.Idle)
	}
	text += fmt.Sprintf(", each %d by %v", s.Devices, s.Form)
	if s.Odd != s.Form {
		text += fmt.Sprintf(" or %v", s.Odd)
	}
	text += fmt.Sprintf(" in %d groups", s.Groups)
	if s.Machine.hasGPUs() {
		text += fmt.Sprintf(", %d levels, %v memory", s.Nested, s.Amount)
	} else {
		text += fmt.Sprintf(" of %d plugins", s.Plugins)
	}
	for _, flag := range []struct {
		is   bool
		word string
	}{{s.Cards, "cards"}, {s.Scored, "scored"}, {s.Varied, "varied"}} {
		if flag.is {
			text += ", " + flag.word
		}
	}
	if s.Padding > 0 {
		text += fmt.Sprintf(", padded by %d", s.Padding)
	}
	return text
}

// Mutate returns the shape with one property grown, shrunk or turned round.
func (s Shape) Mutate(rng *rand.Rand) Shape {
	scale := func(n *int, least, most int) {
		switch rng.IntN(4) {
		case 0:
			*n = *n*2 + 1
		case 1:
			*n /= 2
		case 2:
			*n++
		default:
			*n--
		}
		*n = min(most, max(least, *n))
	}
	switch rng.IntN(15) {
	case 0:
		scale(&s.Regular, 0, 128)
	case 1:
		scale(&s.Sidecars, 0, 128)
	case 2:
		scale(&s.Inits, 0, 128)
	case 3:
		scale(&s.Idle, 0, 256)
	case 4, 5:
		scale(&s.Devices, 1, 4096)
	case 6:
		scale(&s.Groups, 1, 1024)
	case 7:
		s.Nested = rng.IntN(3)
	case 8:
		s.Plugins = 1 + rng.IntN(max(1, s.Machine.plugins()))
	case 9:
		s.Amount = Amount(rng.IntN(int(amounts)))
	case 10:
		s.Form = Form(rng.IntN(int(forms)))
	case 11:
		s.Odd = Form(rng.IntN(int(forms)))
	case 12:
		s.Odd = s.Form
	case 13:
		scale(&s.Padding, 0, 900)
	default:
		s.Cards, s.Scored, s.Varied = rng.IntN(2) == 0, rng.IntN(4) == 0, rng.IntN(2) == 0
	}
	return s
}

// Pod returns a pod of this shape. Pods of one shape differ in their names alone.
func (s Shape) Pod(name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: metav1.NamespaceDefault, UID: apitypes.UID(name), ResourceVersion: "1",
	}}
	written := &types.PodInfo{
		InitContainers: map[string]types.ContainerInfo{}, RunningContainers: map[string]types.ContainerInfo{},
	}
	number := 0
	add := func(kind string, count int, to map[string]types.ContainerInfo) {
		for range count {
			container := corev1.Container{Name: fmt.Sprintf("%s%d", kind, number), Image: "busybox"}
			form := s.Form
			if number%2 == 1 {
				form = s.Odd
			}
			if kind != "z" {
				if info := s.container(form, number, &container); len(info.Requests) > 0 {
					to[container.Name] = info
				}
			}
			number++
			switch kind {
			case "s":
				container.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
				fallthrough
			case "i":
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
			default:
				pod.Spec.Containers = append(pod.Spec.Containers, container)
			}
		}
	}
	add("s", s.Sidecars, written.RunningContainers)
	add("i", s.Inits, written.InitContainers)
	add("r", s.Regular, written.RunningContainers)
	add("z", max(s.Idle, 1-s.Regular), written.RunningContainers) // a pod has at least one regular container
	if len(written.InitContainers)+len(written.RunningContainers) > 0 {
		text, err := json.Marshal(written)
		if err != nil {
			panic(err)
		}
		pod.Annotations = map[string]string{deviceinfo.Annotation: string(text)}
	}
	return pod
}

// container returns what a container requests in the annotation, and sets its limits.
func (s Shape) container(form Form, number int, container *corev1.Container) types.ContainerInfo {
	info := types.ContainerInfo{Requests: types.ResourceList{}}
	vary := 0
	if s.Varied {
		vary = number
	}
	limit := func(name types.ResourceName, count int) {
		if s.Amount == Giant {
			count *= 1_000_000_000
		}
		if container.Resources.Limits == nil {
			container.Resources.Limits = corev1.ResourceList{}
		}
		container.Resources.Limits[corev1.ResourceName(name)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
		container.Resources.Requests = container.Resources.Limits
	}
	if s.Machine.hasGPUs() {
		s.gpus(form, vary, &info, limit)
	} else {
		s.hosted(form, vary, &info, limit)
	}
	return info
}

// gpus adds a container's requests for GPUs.
func (s Shape) gpus(form Form, vary int, info *types.ContainerInfo, limit func(types.ResourceName, int)) {
	switch form {
	case Scattered:
		info.Requests["gpu/gpu-generate-topology"] = 0
		fallthrough
	case Counts:
		limit(gpu.Resource, max(1, s.Devices-vary%2))
		return
	}
	for d := range s.Devices {
		group := d % s.Groups
		path := ""
		if s.Nested > 1 {
			path = fmt.Sprintf("%s/%d/", gpu.Wide, group/4)
		}
		if s.Nested > 0 {
			path += fmt.Sprintf("%s/%d/", gpu.Close, group)
		}
		path += fmt.Sprintf("%s/%s%d/", gpu.Level, strings.Repeat("x", s.Padding), d)
		if s.Cards {
			info.Requests[types.ResourceName(path+gpu.Cards)] = 1
		}
		memory := types.ResourceName(path + gpu.Memory)
		switch s.Amount {
		case Giant:
			info.Requests[memory] = (1<<63 - 1) / int64(s.Devices*(s.Regular+s.Sidecars+s.Inits))
		case Different:
			info.Requests[memory] = int64(9_999 + (d*37+vary)%s.Machine.devices())
		default:
			info.Requests[memory] = 5_000
		}
		if s.Scored {
			if info.Scorer == nil {
				info.Scorer = types.ResourceScorer{}
			}
			info.Scorer[memory] = 1
		}
	}
}

// hosted adds a container's requests for devices of kubelet device plugins.
func (s Shape) hosted(form Form, vary int, info *types.ContainerInfo, limit func(types.ResourceName, int)) {
	padding := strings.Repeat("x", s.Padding)
	for plugin := range s.Plugins {
		level := strings.Replace(string(hosted(plugin)), "/", ":", 1)
		share := max(1, s.Devices/s.Plugins-(vary+plugin)%2)
		switch form {
		case Paths, Several, Scattered:
			for group := range min(s.Groups, share) {
				several := share / s.Groups
				if group < share%s.Groups {
					several++
				}
				info.Requests[types.ResourceName(fmt.Sprintf("numa/%s%d/%s", padding, group, level))] = int64(several)
			}
			limit(hosted(plugin), share)
		case Each:
			for d := range share {
				info.Requests[types.ResourceName(
					fmt.Sprintf("numa/%s%d/%s/%d/device", padding, d%s.Groups, level, d))] = 1
			}
			limit(hosted(plugin), share)
		case Named:
			for d := range share {
				id := 20 + d + vary
				wanted := int64(d % 2)
				info.Requests[types.ResourceName(
					fmt.Sprintf("numa/%s%d/%s/=%d/device", padding, d, level, id))] = wanted
			}
			limit(hosted(plugin), share)
		default:
			limit(hosted(plugin), share)
		}
	}
}
