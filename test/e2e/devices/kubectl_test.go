// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	kubectl "github.com/kubedevice/kubedevice/pkg/kubectl/devices"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// kubectlDevice runs kubectl's plugin as users do, by kubectl itself.
type kubectlDevice struct {
	t   *testing.T
	ctx context.Context
	dir string
}

func newKubectlDevice(ctx context.Context, t *testing.T) kubectlDevice {
	t.Helper()
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	k := kubectlDevice{t, ctx, filepath.Join(root, "_output")}
	if _, err := os.Stat(filepath.Join(k.dir, "kubectl-device")); err != nil {
		t.Fatalf("\"make kubectl-device\" comes first: %v", err)
	}
	return k
}

// command returns a command that is not started yet.
func (k kubectlDevice) command(args ...string) *exec.Cmd {
	command := shared.KubectlCommand(k.ctx, append([]string{"device"}, args...)...)
	command.Env = append(command.Env, "PATH="+k.dir+":"+os.Getenv("PATH"))
	return command
}

// run returns what a command prints, and what it prints about errors.
func (k kubectlDevice) run(args ...string) (stdout, stderr string, status int) {
	k.t.Helper()
	command := k.command(args...)
	var out, errOut strings.Builder
	command.Stdout, command.Stderr = &out, &errOut
	err := command.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		status = exit.ExitCode()
	} else if err != nil {
		k.t.Fatal(err)
	}
	return out.String(), errOut.String(), status
}

// read decodes the JSON that a command prints.
func (k kubectlDevice) read(into any, args ...string) {
	k.t.Helper()
	stdout, stderr, status := k.run(append(args, "-o", "json")...)
	if status != 0 {
		k.t.Fatalf("kubectl device %q: exit status %d: %s", args, status, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), into); err != nil {
		k.t.Fatalf("kubectl device %q: %v:\n%s", args, err, stdout)
	}
}

// allocated returns what the annotation of a pod says that its container main has, by the names of
// resources.
func allocated(t *testing.T, pod *corev1.Pod) map[string]int64 {
	t.Helper()
	allocation, err := deviceinfo.PodAllocation(pod)
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]int64{}
	container := allocation.RunningContainers["main"]
	for request, from := range container.AllocateFrom {
		held[strings.TrimPrefix(string(from), types.DeviceGroupPrefix+"/")] += container.DevRequests[request]
	}
	return held
}

func TestKubectlDeviceShowsWhatThePodsAnnotationsSay(t *testing.T) {
	ctx := begin(t)
	k := newKubectlDevice(ctx, t)
	namespace := clustertest.Namespace(t, shared.Client)
	pair := clustertest.RunPod(ctx, t, shared.Client, gpuPod(namespace, "pair", 2))
	sharing := gpuPod(namespace, "sharing", 0)
	kube.SetRequests(sharing, `"gpu/a/memory":1073741824`)
	sharing = clustertest.RunPod(ctx, t, shared.Client, sharing)
	waiting := clustertest.CreatePod(ctx, t, shared.Client, gpuPod(namespace, "waiting", perNode+1))
	waiting = clustertest.AwaitPod(ctx, t, shared.Client, waiting, "to wait with a reason", kube.Unschedulable)
	clustertest.RunPod(ctx, t, shared.Client, gpuPod(namespace, "plain", 0))

	var pods kubectl.PodList
	k.read(&pods, "pods", "-n", namespace)
	want := map[string]map[string]int64{
		"pair": allocated(t, pair), "sharing": allocated(t, sharing), "waiting": {},
	}
	got := map[string]map[string]int64{}
	for _, pod := range pods.Items {
		got[pod.Name] = map[string]int64{}
		for _, part := range pod.Containers[0].Devices {
			for resource, quantity := range part.Resources {
				got[pod.Name][part.Path+"/"+resource] = quantity
			}
		}
		state, node := kubectl.Granted, pair.Spec.NodeName
		switch pod.Name {
		case "sharing":
			node = sharing.Spec.NodeName
		case "waiting":
			state, node = kubectl.Waiting, ""
			if pod.Message != unschedulable(waiting) {
				t.Errorf("pod waiting waits for %q, want %q", pod.Message, unschedulable(waiting))
			}
		}
		if pod.State != state || pod.Node != node {
			t.Errorf("pod %s is %s on node %q, want %s on %q", pod.Name, pod.State, pod.Node, state, node)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what pods have (-annotations +kubectl device pods):\n%s", diff)
	}

	var nodes kubectl.NodeList
	k.read(&nodes, "nodes")
	held := map[string]map[string]int64{"pair": {}, "sharing": {}}
	for _, node := range nodes.Items {
		if len(node.Devices) != perNode || len(node.Problems) > 0 {
			t.Errorf("node %s has %d devices and the problems %q", node.Name, len(node.Devices), node.Problems)
		}
		for _, device := range node.Devices {
			for _, holder := range device.Holders {
				for resource, quantity := range holder.Resources {
					held[holder.Pod][device.Path+"/"+resource] = quantity
				}
				if holder.Namespace != namespace || holder.Container != "main" || holder.State != kubectl.Granted {
					t.Errorf("%s of node %s has the holder %+v", device.Path, node.Name, holder)
				}
			}
			if (device.Use == kubectl.Free) != (len(device.Holders) == 0) {
				t.Errorf("%s of node %s is %s and has %d holders",
					device.Path, node.Name, device.Use, len(device.Holders))
			}
		}
	}
	delete(want, "waiting")
	if diff := cmp.Diff(want, held); diff != "" {
		t.Errorf("what devices are held (-annotations +kubectl device nodes):\n%s", diff)
	}

	var usage kubectl.UsageList
	k.read(&usage, "top")
	if len(usage.Totals) != 1 {
		t.Fatalf("%d kinds have totals, want one", len(usage.Totals))
	}
	if total := *usage.Totals[0]; total.Free != capacity-3 || total.Whole != 2 || total.Shared != 1 {
		t.Errorf("of %d GPUs 2 are held whole and one in part; the use is %+v", capacity, total)
	}

	t.Run("in tables", func(t *testing.T) { expectTables(t, k, pair, sharing) })
	t.Run("as they change", func(t *testing.T) { expectWatch(ctx, t, k, namespace) })
	t.Run("by the exit status", func(t *testing.T) {
		_, stderr, status := k.run("nodes", "missing")
		if status != 1 || !strings.Contains(stderr, `Error from server (NotFound): nodes "missing" not found`) {
			t.Errorf("exit status %d, %q", status, stderr)
		}
	})
}

// expectTables fails the test unless the tables have a line for each device of the pods.
func expectTables(t *testing.T, k kubectlDevice, whole, part *corev1.Pod) {
	pods, _, _ := k.run("pods", "-n", whole.Namespace)
	nodes, _, _ := k.run("nodes", whole.Spec.NodeName, part.Spec.NodeName)
	ids := map[*corev1.Pod][]string{}
	for _, pod := range []*corev1.Pod{whole, part} {
		names := map[string]bool{}
		for path := range allocated(t, pod) {
			segments := strings.Split(path, "/")
			names["gpu/"+segments[len(segments)-2]] = true
		}
		ids[pod] = slices.Sorted(maps.Keys(names))
	}
	for pod, devices := range ids {
		use := map[*corev1.Pod]string{whole: "whole", part: "shared"}[pod]
		for _, device := range devices {
			if !hasLine(pods, pod.Name, "main", pod.Spec.NodeName, device, "Granted") {
				t.Errorf("%s has no line for %s of pod %s:\n%s", "kubectl device pods", device, pod.Name, pods)
			}
			if !hasLine(nodes, pod.Spec.NodeName, device, use, "Healthy", pod.Namespace+"/"+pod.Name+"/main") {
				t.Errorf("%s has no line for %s of pod %s:\n%s", "kubectl device nodes", device, pod.Name, nodes)
			}
		}
	}
	if !hasLine(pods, "waiting", "Waiting", "requests") {
		t.Errorf("kubectl device pods has no line for pod waiting:\n%s", pods)
	}
}

// expectWatch fails the test unless a watch prints a pod that comes, runs and goes, and ends well
// when it is interrupted.
func expectWatch(ctx context.Context, t *testing.T, k kubectlDevice, namespace string) {
	command := k.command("pods", "-n", namespace, "--watch")
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	await := func(words ...string) {
		t.Helper()
		for lines.Scan() {
			if hasLine(lines.Text(), words...) {
				return
			}
		}
		t.Fatalf("kubectl device pods --watch prints no line with %q", words)
	}
	await("pair", "Granted")
	late := clustertest.RunPod(ctx, t, shared.Client, gpuPod(namespace, "late", 1))
	await("late", late.Spec.NodeName, "Granted")
	clustertest.DeletePod(ctx, t, shared.Client, late)
	await("late", "Deleted")
	if err := command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("after an interruption: %v", err)
	}
}

// hasLine reports whether a line of a table has these words.
func hasLine(table string, words ...string) bool {
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if !slices.ContainsFunc(words, func(word string) bool { return !slices.Contains(fields, word) }) {
			return true
		}
	}
	return false
}
