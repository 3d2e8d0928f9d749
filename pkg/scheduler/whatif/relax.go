// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	path "github.com/kubedevice/kubedevice/pkg/sdk/resource"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// change is one change of a pod: one constraint less.
type change struct {
	text     string
	make     func(*v1.Pod)
	topology bool // the pod keeps its devices, and only how they are connected is another
}

// maxFewer is how many smaller numbers of devices are tried.
const maxFewer = 16

// relax tries the pod with one constraint less.
func (c *cycle) relax(ctx context.Context, found *schedulerapi.Smallest) error {
	for _, alternatives := range c.relaxations() {
		for _, one := range alternatives { // the first that fits is the smallest
			pod := c.pod.DeepCopy()
			pod.UID, pod.ResourceVersion = types.UID(c.simulation.engine.uid()), ""
			one.make(pod)
			tried, err := c.simulation.cycle(ctx, pod)
			if err != nil {
				return err
			}
			if len(tried.fits) > 0 {
				found.Relax = append(found.Relax, schedulerapi.Relaxation{
					Text: one.text, Nodes: nodeNames(tried.fits), Topology: one.topology,
				})
				break
			}
		}
	}
	return nil
}

// relaxations returns the changes to try. The inner lists have the changes that relax the same
// constraint, the smallest relaxation first.
func (c *cycle) relaxations() [][]change {
	all := slices.Concat(topologyRelaxations(c.pod), fewerDevices(c.pod), annotationRelaxations(c.pod))
	for _, one := range slices.Concat(selectorRelaxations(&c.pod.Spec), c.tolerations()) {
		all = append(all, []change{one})
	}
	return all
}

// eachContainer calls f with the containers of a pod, including its init containers.
func eachContainer(pod *v1.Pod, f func(*v1.Container)) {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			f(&list[i])
		}
	}
}

// fewerDevices returns smaller counts of extended resources.
func fewerDevices(pod *v1.Pod) (all [][]change) {
	eachContainer(pod, func(c *v1.Container) {
		container := c.Name
		for _, name := range slices.Sorted(maps.Keys(c.Resources.Requests)) {
			wanted := c.Resources.Requests[name]
			if !path.IsExtendedResource(sdk.ResourceName(name)) {
				continue
			}
			var counts []change
			for n := wanted.Value() - 1; n > 0 && len(counts) < maxFewer; n-- {
				counts = append(counts, change{
					text: fmt.Sprintf("container %q: %s %d in place of %d", container, name, n, wanted.Value()),
					make: func(pod *v1.Pod) {
						eachContainer(pod, func(c *v1.Container) {
							if c.Name == container {
								c.Resources.Requests[name] = *resource.NewQuantity(n, resource.DecimalSI)
								delete(c.Resources.Limits, name)
							}
						})
					},
				})
			}
			all = append(all, counts)
		}
	})
	return all
}

// annotationRelaxations returns changes of the annotation's requests.
func annotationRelaxations(pod *v1.Pod) (all [][]change) {
	written, err := deviceinfo.DecodePod(pod.Annotations[deviceinfo.Annotation])
	if err != nil {
		return nil
	}
	changed := func(text string, modify func(*sdk.PodInfo)) change {
		return change{text: text, make: func(pod *v1.Pod) { edit(pod, modify) }}
	}
	for _, name := range slices.Sorted(maps.Keys(written.Requests)) {
		if isTopology(name) {
			continue
		}
		all = append(all, []change{changed(fmt.Sprintf("without the annotation's request %s", name),
			func(info *sdk.PodInfo) { delete(info.Requests, name) })})
	}
	for init, list := range map[bool]map[string]sdk.ContainerInfo{
		true: written.InitContainers, false: written.RunningContainers,
	} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			edited := func(text string, requests sdk.ResourceList) change {
				return changed(fmt.Sprintf("container %q: %s", name, text), func(info *sdk.PodInfo) {
					containers := info.RunningContainers
					if init {
						containers = info.InitContainers
					}
					container := containers[name]
					container.Requests = requests
					containers[name] = container
				})
			}
			requests := parseRequests(list[name].Requests)
			for _, level := range outerLevels(requests) {
				all = append(all, []change{edited(fmt.Sprintf("without the level %s", level), withoutLevel(requests,
					level))})
			}
			var fewer []change
			devices := devicesOf(requests)
			for n := len(devices) - 1; n > 0 && len(fewer) < maxFewer; n-- {
				text := fmt.Sprintf("%d in place of %d devices in the annotation", n, len(devices))
				fewer = append(fewer, edited(text, requestsFor(requests, devices[:n])))
			}
			all = append(all, fewer)
		}
	}
	slices.SortStableFunc(all, func(a, b []change) int { return strings.Compare(textOf(a), textOf(b)) })
	return all
}

func textOf(alternatives []change) string {
	if len(alternatives) == 0 {
		return ""
	}
	return alternatives[0].text
}

// deviceRequest is one request of a container in the annotation.
type deviceRequest struct {
	name     sdk.ResourceName
	quantity int64
	path     path.Path
	device   string // empty if the name is no path
}

func parseRequests(requests sdk.ResourceList) []deviceRequest {
	var all []deviceRequest
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		one := deviceRequest{name: name, quantity: requests[name]}
		if parsedPath, err := path.ParseRequest(name); err == nil {
			one.path, one.device = parsedPath, parsedPath.Device()
		}
		all = append(all, one)
	}
	return all
}

// outerLevels returns the levels of groups, outermost first.
func outerLevels(requests []deviceRequest) []string {
	var levels []string
	for _, one := range requests {
		if one.device == "" {
			continue
		}
		for level := range one.path.Levels() {
			if level != one.path.DeviceLevel() && !slices.Contains(levels, level) {
				levels = append(levels, level)
			}
		}
	}
	return levels
}

// withoutLevel returns the requests without a level. Devices of different groups stay different.
func withoutLevel(requests []deviceRequest, dropped string) sdk.ResourceList {
	all := sdk.ResourceList{}
	for _, one := range requests {
		if one.device == "" {
			all[one.name] = one.quantity
			continue
		}
		var name strings.Builder
		group := ""
		for level, instance := range one.path.Levels() {
			if level == dropped {
				group = instance + "-"
				continue
			}
			name.WriteString(level + "/" + group + instance + "/")
		}
		all[path.WithPrefix(sdk.ResourceName(name.String()+one.path.Resource()))] += one.quantity
	}
	return all
}

func devicesOf(requests []deviceRequest) []string {
	var devices []string
	for _, one := range requests {
		if one.device != "" && !slices.Contains(devices, one.device) {
			devices = append(devices, one.device)
		}
	}
	return devices
}

// requestsFor returns the requests for these devices, and those that name no device.
func requestsFor(requests []deviceRequest, devices []string) sdk.ResourceList {
	all := sdk.ResourceList{}
	for _, one := range requests {
		if one.device == "" || slices.Contains(devices, one.device) {
			all[one.name] = one.quantity
		}
	}
	return all
}

// selectorRelaxations returns one change for each constraint of upstream's plugins that a pod has.
func selectorRelaxations(spec *v1.PodSpec) (all []change) {
	for _, label := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		all = append(all, change{
			text: fmt.Sprintf("without the node selector %s=%s", label, spec.NodeSelector[label]),
			make: func(pod *v1.Pod) { delete(pod.Spec.NodeSelector, label) },
		})
	}
	if affinity := spec.Affinity; affinity != nil {
		if node := affinity.NodeAffinity; node != nil && node.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			all = append(all, change{text: "without the required node affinity", make: func(pod *v1.Pod) {
				pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
			}})
		}
		if pods := affinity.PodAffinity; pods != nil && len(pods.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			all = append(all, change{text: "without the required pod affinity", make: func(pod *v1.Pod) {
				pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
			}})
		}
		if anti := affinity.PodAntiAffinity; anti != nil &&
			len(anti.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			all = append(all, change{text: "without the required pod anti-affinity", make: func(pod *v1.Pod) {
				pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
			}})
		}
	}
	for i, spread := range spec.TopologySpreadConstraints {
		if spread.WhenUnsatisfiable == v1.DoNotSchedule {
			all = append(all, change{
				text: fmt.Sprintf("without the topology spread constraint over %s", spread.TopologyKey),
				make: func(pod *v1.Pod) {
					pod.Spec.TopologySpreadConstraints = slices.Delete(pod.Spec.TopologySpreadConstraints, i, i+1)
				},
			})
		}
	}
	return all
}

// tolerations returns a toleration for each taint of a node that the pod does not tolerate. It
// omits taints that report the state of a node.
func (c *cycle) tolerations() (all []change) {
	known := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(c.simulation.states.Nodes)) {
		node := c.simulation.states.Nodes[name]
		for _, taint := range slices.Concat(node.Spec.Taints, deviceTaints(node)) {
			if taint.Effect == v1.TaintEffectPreferNoSchedule || taint.Key == deviceinfo.CordonKey ||
				strings.HasPrefix(taint.Key, "node.kubernetes.io/") ||
				known[taint.ToString()] || len(known) == maxFewer ||
				corev1.TolerationsTolerateTaint(klog.Logger{}, c.pod.Spec.Tolerations, &taint, false) {
				continue
			}
			known[taint.ToString()] = true
			all = append(all, change{text: fmt.Sprintf("with a toleration of the taint %s", taint.ToString()),
				make: func(pod *v1.Pod) {
					pod.Spec.Tolerations = append(pod.Spec.Tolerations, v1.Toleration{
						Key: taint.Key, Operator: v1.TolerationOpEqual, Value: taint.Value, Effect: taint.Effect,
					})
				}})
		}
	}
	return all
}

// deviceTaints returns the taints of a node's devices.
func deviceTaints(node *v1.Node) []v1.Taint {
	// A node with an invalid list has no devices for any pod.
	list, _ := deviceinfo.DecodeDeviceTaints(node.Annotations[deviceinfo.DeviceTaintsAnnotation])
	taints := make([]v1.Taint, len(list))
	for i := range list {
		taints[i] = list[i].Taint()
	}
	return taints
}
