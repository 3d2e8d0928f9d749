// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package vendors

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
)

// limits are how many devices a pod requests.
type limits map[corev1.ResourceName]int64

// choice is the IDs of the devices that were chosen for a container, in order, by resource.
type choice map[corev1.ResourceName][]string

// chosen reads what the scheduler chose for a pod's container main from the pod's annotation.
func chosen(pod *corev1.Pod) (choice, error) {
	allocation, err := deviceinfo.PodAllocation(pod)
	if err != nil {
		return nil, err
	}
	ids := choice{}
	for _, name := range allocation.RunningContainers["main"].AllocateFrom {
		device, ok := kubeletdevice.Parse(name)
		if !ok {
			return nil, fmt.Errorf("pod %s was allocated %s, which is no hosted device", pod.Name, name)
		}
		ids[corev1.ResourceName(device.Resource)] = append(ids[corev1.ResourceName(device.Resource)], device.ID)
	}
	for _, all := range ids {
		slices.Sort(all)
	}
	return ids, nil
}

// expectDevices returns what the scheduler chose for a running pod, which is as much as it requests
// and fails the test unless its container has just that: it can open the devices' nodes, and
// no other device of the node, not even by a node that it makes itself.
func expectDevices(ctx context.Context, t *testing.T, pod *corev1.Pod) choice {
	t.Helper()
	ids, err := chosen(pod)
	if err != nil {
		t.Fatal(err)
	}
	requested, got := limits{}, limits{}
	for name, count := range pod.Spec.Containers[0].Resources.Limits {
		requested[name] = count.Value()
	}
	for name, all := range ids {
		got[name] = int64(len(all))
	}
	if diff := cmp.Diff(requested, got); diff != "" {
		t.Errorf("devices chosen for pod %s (-requested +chosen):\n%s", pod.Name, diff)
	}
	n := nodeOf(pod)
	printed, err := shared.Client.Exec(ctx, pod, "main", n.probe()...)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.checkProbe(ids, printed); err != nil {
		t.Errorf("pod %s on %s: %v", pod.Name, n.Name, err)
	}
	return ids
}

func nodeOf(pod *corev1.Pod) *node {
	return nodes[slices.IndexFunc(nodes, func(n *node) bool { return n.Name == pod.Spec.NodeName })]
}

// script tries device nodes: its arguments are path, major and minor of each. One that is not there
// the container makes itself. No driver is behind them, so that opening one which is permitted
// fails with ENXIO, and one which is not with EPERM.
const script = `while [ $# -gt 0 ]; do
  kind=has; path=$1
  [ -e $path ] || { kind=lacks; path=/tmp/probe-$2-$3; [ -e $path ] || mknod $path c $2 $3 || exit; }
  echo "$kind $1 $( (exec 3<$path) 2>&1)"
  shift 3
done
echo "env NVIDIA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES"`

// probe is a command that tries all devices of the node.
func (n *node) probe() []string {
	command := []string{"sh", "-c", script, "probe"}
	numbers := n.Nodes()
	for _, path := range slices.Sorted(maps.Keys(numbers)) {
		command = append(command, path, fmt.Sprint(numbers[path][0]), fmt.Sprint(numbers[path][1]))
	}
	return command
}

// checkProbe compares what a probe printed with what was chosen.
func (n *node) checkProbe(ids choice, printed string) error {
	want, got := map[string]bool{}, map[string]bool{}
	numbers := n.Nodes()
	for path := range numbers {
		want[path] = false
	}
	var gpus []string // which a container gets to see that has shares of them, too
	for name := range n.plugins {
		for _, device := range n.Plugin(name).Devices {
			if !slices.Contains(ids[corev1.ResourceName(device.Resource)], device.ID) {
				continue
			}
			if gpu := device.Envs["NVIDIA_VISIBLE_DEVICES"]; gpu != "" {
				gpus = append(gpus, gpu)
			}
			for _, path := range device.Nodes {
				if _, ok := numbers[path]; ok {
					want[path] = true
				}
			}
		}
	}
	visible := []string{}
	for line := range strings.Lines(printed) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		what, answer, _ := strings.Cut(rest, " ")
		permitted := !strings.Contains(answer, "Operation not permitted")
		switch {
		case kind == "env":
			visible = strings.FieldsFunc(answer, func(r rune) bool { return r == ',' })
		case permitted != (kind == "has"):
			return fmt.Errorf("the container %s %s and gets %q when it opens it", kind, what, answer)
		default:
			got[what] = permitted
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("devices that the container may open (-want +got):\n%s", diff)
	}
	slices.Sort(visible)
	slices.Sort(gpus)
	if len(gpus) == 0 {
		gpus = []string{"void"} // by the device firewall: NVIDIA's runtime adds none
	}
	if !slices.Equal(visible, gpus) {
		return fmt.Errorf("the container is to use the GPUs %q, want %q", visible, gpus)
	}
	return nil
}

// podName makes a name for a pod from that of a plugin.
func podName(plugin string) string { return strings.ReplaceAll(plugin, "_", "-") }
