// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// observation is what the two sides say of one running pod.
type observation struct {
	pod, node string
	annotated bool
	// paths are the resources of the node that the scheduler chose, chosen the devices that they belong to.
	paths, chosen []string
	// sees are the devices that the container finds, refused those of the node's others that it cannot open.
	sees, refused []string
}

// look asks the pod's annotation, and the container from inside.
func (d *demo) look(ctx context.Context, pod *corev1.Pod) (observation, error) {
	seen := observation{pod: pod.Name, node: pod.Spec.NodeName}
	if _, seen.annotated = pod.Annotations[deviceinfo.Annotation]; seen.annotated {
		allocation, err := deviceinfo.PodAllocation(pod)
		if err != nil {
			return seen, err
		}
		for _, container := range allocation.RunningContainers {
			for _, path := range container.AllocateFrom {
				seen.paths = append(seen.paths, string(path))
			}
		}
		slices.Sort(seen.paths)
		seen.chosen = deviceIDs(seen.paths)
	}
	printed, err := d.client.Exec(ctx, pod, pod.Spec.Containers[0].Name, append([]string{"sh", "-c", probe, "probe"}, d.numbers[seen.node]...)...)
	if err != nil {
		return seen, err
	}
	return seen, seen.read(printed)
}

// probe runs in the container. Its arguments are ID MAJOR MINOR of each device of the node. A device that is there is
// opened; for one that is not, the container makes a device node of its own and opens that.
//
// No driver is behind the simulated devices. So an open that is allowed fails in the driver's place, with ENXIO ("No such
// device or address"), and one that is not fails before that, with EPERM ("Operation not permitted").
const probe = `while [ $# -gt 0 ]; do
  kind=sees; path=` + deviceFolder + `/$1
  [ -e $path ] || { kind=lacks; path=/tmp/$1; mknod $path c $2 $3 || exit; }
  echo "$kind $1 $( (exec 3<$path) 2>&1)"
  shift 3
done`

// read takes in what probe printed.
func (o *observation) read(printed string) error {
	for line := range strings.Lines(printed) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		id, answer, _ := strings.Cut(rest, " ")
		permitted := !strings.Contains(answer, "Operation not permitted")
		switch {
		case kind == "sees" && permitted:
			o.sees = append(o.sees, id)
		case kind == "lacks" && !permitted:
			o.refused = append(o.refused, id)
		case kind == "sees":
			return fmt.Errorf("pod %s cannot open the device %s that it was given: %s", o.pod, id, answer)
		default:
			return fmt.Errorf("pod %s can open the device %s that it was not given: %q", o.pod, id, answer)
		}
	}
	return nil
}

// agree checks that the container has what the scheduler chose, and that all else was refused.
func (o *observation) agree(onNode int) error {
	if !slices.Equal(o.chosen, o.sees) {
		return fmt.Errorf("pod %s: the scheduler chose %v, the container has %v", o.pod, o.chosen, o.sees)
	}
	if len(o.sees)+len(o.refused) != onNode {
		return fmt.Errorf("pod %s: of %d devices of node %s, %d were tried", o.pod, onNode, o.node, len(o.sees)+len(o.refused))
	}
	return nil
}

// deviceIDs returns the devices that resources such as …/gpu/<id>/cards belong to.
func deviceIDs(paths []string) []string {
	ids := map[string]bool{}
	for _, path := range paths {
		if _, after, found := strings.Cut(path, "/gpu/"); found {
			id, _, _ := strings.Cut(after, "/")
			ids[id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
