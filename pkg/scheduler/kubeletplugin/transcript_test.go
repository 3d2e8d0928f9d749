// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// legend explains the transcripts to who reads them.
const legend = `# Which devices a node has, what a pod requests, and what it gets. "go test -rewrite" writes this file.
#
# node  devices by NUMA node and resource; * in use, ! unhealthy
# pod   containers in the order of the spec: kind, requests of resources, requests of the annotation
# gets  the score; by container and request: the device, as numa/<node>/<resource>/<id>
#       or: refused, and whether evicting pods could help
`

// transcript is one allocation, for people: it has all that the allocator reads and answers.
type transcript struct {
	node *types.NodeInfo
	spec []grouptree.Container
	pod  *types.PodInfo // before the allocation
}

// text returns what is requested, and after it the answer, in columns that tabs separate.
func (t transcript) text(answer func(*strings.Builder)) string {
	var out strings.Builder
	t.writeNode(&out)
	t.writePod(&out)
	answer(&out)
	return out.String()
}

// align replaces the tabs of a text by spaces.
func align(text string) string {
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, text)
	table.Flush() //nolint:errcheck // a builder takes all
	return out.String()
}

// writeNode writes one line for the devices of each group, and one for each other resource.
func (t transcript) writeNode(out *strings.Builder) {
	groups := map[string][]string{}
	names := maps.Clone(t.node.Allocatable)
	maps.Copy(names, t.node.Used)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		group, id := string(name), "(no device)"
		if within, isDevice := strings.CutSuffix(short(name), "/device"); isDevice {
			at := strings.LastIndex(within, "/")
			group, id = within[:at], within[at+1:]
		}
		groups[group] = append(groups[group], id+mark(t.node, name))
	}
	title := "node"
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(out, "%s\t%s\t%s\n", title, group, strings.Join(groups[group], " "))
		title = ""
	}
}

// mark says how a device differs from one that is healthy and free. The quantities of a device are
// 0 and 1; any other is written out.
func mark(node *types.NodeInfo, name types.ResourceName) string {
	allocatable, listed := node.Allocatable[name]
	used, inUse := node.Used[name]
	switch {
	case !listed || allocatable != 0 && allocatable != 1 || inUse && used != 1:
		return fmt.Sprintf("(%d of %d used)", used, allocatable)
	case inUse && allocatable == 0:
		return "*!"
	case inUse:
		return "*"
	case allocatable == 0:
		return "!"
	default:
		return ""
	}
}

// writePod writes one line for each container.
func (t transcript) writePod(out *strings.Builder) {
	title := "pod"
	line := func(name, requests string) {
		fmt.Fprintf(out, "%s\t%s\t%s\n", title, name, requests)
		title = ""
	}
	listed := map[string]bool{}
	for _, c := range t.spec {
		listed[c.Name] = true
		kind := map[grouptree.Kind]string{
			grouptree.Regular: "container", grouptree.Init: "init container", grouptree.Sidecar: "sidecar",
		}[c.Kind]
		info, init := t.pod.InitContainers[c.Name]
		if !init {
			info = t.pod.RunningContainers[c.Name]
		}
		line(kind+" "+c.Name, requestsOf(info))
	}
	for _, containers := range []map[string]types.ContainerInfo{t.pod.InitContainers, t.pod.RunningContainers} {
		for _, name := range slices.Sorted(maps.Keys(containers)) {
			if !listed[name] {
				line("not in the spec "+name, requestsOf(containers[name]))
			}
		}
	}
	if len(t.pod.Requests) > 0 {
		line("the pod itself", quantitiesOf(t.pod.Requests))
	}
}

func requestsOf(container types.ContainerInfo) string {
	return fmt.Sprintf("%s; %s", quantitiesOf(container.KubeRequests), quantitiesOf(container.Requests))
}

// quantitiesOf writes quantities by name. A quantity of 1 is not written.
func quantitiesOf(quantities types.ResourceList) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(quantities)) {
		text := string(name)
		if quantity := quantities[name]; quantity != 1 {
			text += fmt.Sprintf(" x%d", quantity)
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}

// writeAllocation writes one line for each device that the containers of a pod get.
func writeAllocation(out *strings.Builder, pod *types.PodInfo, score float64) {
	fmt.Fprintf(out, "gets\tscore\t%.9f\n", score)
	for _, containers := range []map[string]types.ContainerInfo{pod.RunningContainers, pod.InitContainers} {
		for _, name := range slices.Sorted(maps.Keys(containers)) {
			info := containers[name]
			names := map[types.ResourceName]bool{}
			for request := range info.DevRequests {
				names[request] = true
			}
			for request := range info.AllocateFrom {
				names[request] = true
			}
			for _, request := range slices.Sorted(maps.Keys(names)) {
				quantity := quantitiesOf(types.ResourceList{request: info.DevRequests[request]})
				fmt.Fprintf(out, "\t%s\t%s: %s\n", name, quantity, short(info.AllocateFrom[request]))
			}
		}
	}
}

// short returns a name without the prefix that all names of devices have. A name that does not have
// it is quoted.
func short(name types.ResourceName) string {
	if rest, found := strings.CutPrefix(string(name), "resource/group/"); found {
		return rest
	}
	return strconv.Quote(string(name))
}
