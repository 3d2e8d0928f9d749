// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
)

// stateDir is kubecri's, inside a node.
const stateDir = "/var/lib/kubedevice"

func TestASecondPodWithADeviceIsRefusedAndStartsWhenTheFirstIsGone(t *testing.T) {
	ctx := begin(t)
	node := shared.Nodes[0].Name
	namespace := clustertest.Namespace(t, shared.Client)
	holder := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node, gpuPod(namespace, "holder", 1)))
	seen := inspect(ctx, t, holder, "main")
	// A second scheduler gave it away, too.
	card := types.ResourceName(seen.Paths[0])
	second := bindAsScheduler(ctx, t, gpuPod(namespace, "late", 1), node, allocation(t, "late", node, card))
	expectRefused(ctx, t, second, []string{namespace + "/holder", seen.Paths[0], "works when they are gone"})

	if err := shared.Client.DeletePod(ctx, holder); err != nil {
		t.Fatal(err)
	}
	second = clustertest.AwaitPod(ctx, t, shared.Client, second, "to be ready when the holder is gone", kube.Ready)
	expectDevices(ctx, t, second, "main", 1)
}

func TestACheckpointThatIsLostOrDamagedIsWrittenAgainBeforeTheFirstDeviceIsAllocated(t *testing.T) {
	node := shared.Nodes[0]
	for name, test := range map[string]struct {
		harm     func(file string) error
		reported bool
	}{
		"the file is lost": {harm: os.Remove},
		"the file is cut off": {
			harm: func(file string) error { return os.Truncate(file, 200) }, reported: true,
		},
		"the file is of a version to be made": {
			harm: func(file string) error {
				return os.WriteFile(file, []byte("kubedevice-grants v2 …\n"), 0o600)
			}, reported: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := begin(t)
			namespace := clustertest.Namespace(t, shared.Client)
			holder := clustertest.RunPod(ctx, t, shared.Client,
				clustertest.On(node.Name, gpuPod(namespace, "holder", 1)))
			seen := inspect(ctx, t, holder, "main")
			card := types.ResourceName(seen.Paths[0])

			if err := shared.Client.CoreV1().Events(metav1.NamespaceDefault).DeleteCollection(ctx,
				metav1.DeleteOptions{}, eventsOf(node.Name, "GrantsDamaged")); err != nil { // of the last time
				t.Fatal(err)
			}
			if err := node.Kubecri.Kill9(ctx); err != nil {
				t.Fatal(err)
			}
			if err := test.harm(filepath.Join(node.Var(), "lib", "kubedevice", "grants")); err != nil {
				t.Fatal(err)
			}
			// The kubelet waits for kubecri with this one, which is the first that it hears of.
			late := bindAsScheduler(ctx, t, gpuPod(namespace, "late", 1), node.Name,
				allocation(t, "late", node.Name, card))
			if err := node.Kubecri.Start(); err != nil {
				t.Fatal(err)
			}

			expectRefused(ctx, t, late, []string{namespace + "/holder", string(card)})
			awaitHolder(ctx, t, node, holder)
			if test.reported {
				awaitNodeEvent(ctx, t, node.Name, "GrantsDamaged", stateDir+"/grants")
				clustertest.AwaitMetric(ctx, t, node, "kubecri_grants_damaged 1")
			}
			if diff := cmp.Diff(seen, inspect(ctx, t, holder, "main"),
				cmpopts.IgnoreUnexported(observe.Observation{})); diff != "" {
				t.Errorf("what the holder has (-before +after):\n%s", diff)
			}
		})
	}
}

// awaitHolder waits until kubecri prints that the pod holds devices.
func awaitHolder(ctx context.Context, t *testing.T, node *cluster.Node, pod *corev1.Pod) {
	t.Helper()
	clustertest.Await(ctx, t, "pod "+pod.Name+" to be on record", func() bool {
		printed, err := node.RunKubecri(ctx, "grants")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(printed, pod.Namespace) && strings.Contains(printed, pod.Name)
	})
}

// awaitNodeEvent waits for an event about a node whose message has a text in it.
func awaitNodeEvent(ctx context.Context, t *testing.T, node, reason, text string) {
	t.Helper()
	clustertest.Await(ctx, t, "an event "+reason+" on node "+node, func() bool {
		events, err := shared.Client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, eventsOf(node, reason))
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range events.Items {
			if strings.Contains(event.Message, text) {
				return true
			}
		}
		return false
	})
}

// eventsOf are those of a node with a reason.
func eventsOf(node, reason string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "reason=" + reason + ",involvedObject.name=" + node}
}

func TestAFullDiskDelaysAllocationsUntilThereIsSpace(t *testing.T) {
	ctx := begin(t)
	node := shared.Nodes[0]
	namespace := clustertest.Namespace(t, shared.Client)
	holder := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node.Name, gpuPod(namespace, "holder", 1)))
	has := expectDevices(ctx, t, holder, "main", 1)
	fill := onSmallDisk(ctx, t, node)
	awaitHolder(ctx, t, node, holder) // the checkpoint is written again there
	awaitGPUs(ctx, t, node.Name, perNode)

	empty := fill(ctx)
	late := clustertest.CreatePod(ctx, t, shared.Client, clustertest.On(node.Name, gpuPod(namespace, "late", 1)))
	expectRefused(ctx, t, late, []string{"write the checkpoint of granted devices", "no space left on device"})
	clustertest.AwaitMetric(ctx, t, node, "kubecri_grants_unsaved 1")
	if again := expectDevices(ctx, t, clustertest.RestartContainer(ctx, t, shared.Client, holder), "main",
		1); again[0] != has[0] {
		t.Errorf("a pod that has devices gets %q in its next container, it had %q", again, has)
	}

	empty(ctx)
	late = clustertest.AwaitPod(ctx, t, shared.Client, late, "to be ready when there is space", kube.Ready)
	expectDevices(ctx, t, late, "main", 1)
	clustertest.AwaitMetric(ctx, t, node, "kubecri_grants_unsaved 0")
}

// onSmallDisk gives kubecri's state directory a small file system of its own, and kubecri a new
// life, until the test ends. fill fills it up, what fill returns frees it.
func onSmallDisk(ctx context.Context, t *testing.T,
	node *cluster.Node) (fill func(context.Context) (empty func(context.Context))) {
	t.Helper()
	const filler = stateDir + "/filler"
	sh := func(ctx context.Context, command string) {
		t.Helper()
		if _, err := node.Run(ctx, "/bin/sh", "-c", command); err != nil {
			t.Fatal(err)
		}
	}
	restarting := func(ctx context.Context, command string) {
		t.Helper()
		if err := node.Kubecri.Kill9(ctx); err != nil {
			t.Fatal(err)
		}
		sh(ctx, command)
		if err := node.Kubecri.Start(); err != nil {
			t.Fatal(err)
		}
	}
	// The key is the node's; without it, the annotations of containers would not count.
	const key = stateDir + "/grant-key"
	restarting(ctx, "cp -p "+key+" /run/ && mount -t tmpfs -o size=256k tmpfs "+stateDir+" && mv /run/grant-key "+key)
	t.Cleanup(func() { restarting(context.WithoutCancel(ctx), "umount "+stateDir) })
	return func(ctx context.Context) func(context.Context) {
		sh(ctx, "! cat /dev/zero 2>/dev/null > "+filler)
		return func(ctx context.Context) { sh(ctx, "rm "+filler) }
	}
}
