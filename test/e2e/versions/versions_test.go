// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/observe"
)

func TestTheSchedulerEmulatesTheAPIServerAndPodsGetWhatItChose(t *testing.T) {
	ctx := testContext(t)
	server, err := shared.Client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if want := "v" + string(options.Kubernetes) + "."; !strings.HasPrefix(server.GitVersion, want) {
		t.Fatalf("the API server is %s, want %s*", server.GitVersion, want)
	}
	node, err := shared.Client.CoreV1().Nodes().Get(ctx, shared.Nodes[0].Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if kubelet := node.Status.NodeInfo.KubeletVersion; kubelet != server.GitVersion {
		t.Errorf("the kubelet is %s, the API server %s", kubelet, server.GitVersion)
	}
	emulates := strings.Contains(read(t, shared.Scheduler), `flag="--emulated-version=kube=`+string(options.Kubernetes))
	if older := options.Kubernetes != cluster.Kubernetes137; emulates != older {
		t.Errorf("the scheduler says that it emulates %s: %t, want %t", options.Kubernetes, emulates, older)
	}
	expectDevices(ctx, t, clustertest.RunPod(ctx, t, shared.Client, devicePod(clustertest.Namespace(t, shared.Client))))
}

// A scheduler that waited for the lists of an API that is not there would schedule nothing.
func TestAFeatureGateWhoseAPIIsMissingEndsTheSchedulerWithAReason(t *testing.T) {
	ctx := testContext(t)
	scheduler := shared.NewScheduler("gated-scheduler", 10270, cluster.Program{
		Path: options.Scheduler.Path, Args: append(options.Scheduler.Args, "--feature-gates=GenericWorkload=true"),
	})
	if err := scheduler.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := scheduler.Kill9(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	clustertest.Await(ctx, t, "the scheduler to end", func() bool {
		return scheduler.PID() == 0
	})
	said := read(t, scheduler)
	if !strings.Contains(said, "feature gate GenericWorkload to true, feature is ") &&
		!strings.Contains(said, "in scheduling.k8s.io/v1beta1, which an enabled feature gate") {
		t.Errorf("the scheduler ends and does not name what is missing:\n%s", said)
	}
}

// The node's pods run by the certificates in the file meanwhile.
func TestATrustBundleThatTheAPIServerLacksIsNamed(t *testing.T) {
	ctx := testContext(t)
	want := "use --seal-certificates in its place"
	if options.Kubernetes == cluster.Kubernetes137 {
		want = "it does not exist; create it"
	}
	clustertest.Await(ctx, t, "kubecri to say of the trust bundle: "+want, func() bool {
		said := read(t, shared.Nodes[0].Kubecri)
		return strings.Contains(said, bundle) && strings.Contains(said, want)
	})
	expectDevices(ctx, t, clustertest.RunPod(ctx, t, shared.Client, devicePod(clustertest.Namespace(t, shared.Client))))
}

// A mutating policy gives device pods the name of KubeDevice's scheduler. Where the API server has
// no such policies, a validating one refuses pods without that name.
func TestThePolicyForTheAPIServersVersionKeepsDevicePodsForOurScheduler(t *testing.T) {
	ctx := testContext(t)
	const ours = "kubedevice-scheduler"
	mutates := options.Kubernetes >= cluster.Kubernetes136
	applyPolicy(ctx, t, mutates)
	pod := devicePod(clustertest.Namespace(t, shared.Client))
	clustertest.Await(ctx, t, "the policy to be in force", func() bool {
		created, err := shared.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
		if mutates && err == nil && created.Spec.SchedulerName == ours ||
			!mutates && err != nil && strings.Contains(err.Error(), "write schedulerName: "+ours) {
			return true
		}
		return false
	})
	if !mutates {
		pod.Spec.SchedulerName = ours
	}
	pod = clustertest.RunPod(ctx, t, shared.Client, pod)
	if pod.Spec.SchedulerName != ours {
		t.Errorf("the pod's scheduler is %q", pod.Spec.SchedulerName)
	}
	expectDevices(ctx, t, pod)
}

// applyPolicy applies one of the two policies, for the simulated GPUs, until the test ends.
func applyPolicy(ctx context.Context, t *testing.T, mutates bool) {
	t.Helper()
	name := "kubedevice-scheduler-name"
	if !mutates {
		name += "-required"
	}
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "deploy", "policies-optional", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(t.TempDir(), "policy.yaml")
	text := strings.Replace(string(content), "['nvidia.com', ", "['"+string(observe.Resource)+"', ", 1)
	if err := os.WriteFile(manifest, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := shared.Apply(ctx, manifest); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := shared.Kubectl(context.WithoutCancel(ctx), "delete", "--filename="+manifest); err != nil {
			t.Error(err)
		}
	})
}

// devicePod returns a pod that requests two GPUs.
func devicePod(namespace string) *corev1.Pod {
	return clustertest.IdlePod(namespace, "pod", map[corev1.ResourceName]int64{observe.Resource: 2})
}

// expectDevices fails the test unless the pod has exactly the two GPUs that the scheduler chose.
func expectDevices(ctx context.Context, t *testing.T, pod *corev1.Pod) {
	t.Helper()
	observer, err := observe.New(ctx, shared)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := observer.Observe(ctx, pod, "main")
	if err != nil {
		t.Fatal(err)
	}
	if err := seen.Agree(); err != nil || len(seen.Visible) != 2 {
		t.Errorf("the pod has the GPUs %q, want 2: %v", seen.Visible, err)
	}
}

// read returns what a program has said.
func read(t *testing.T, program *cluster.Component) string {
	t.Helper()
	content, err := os.ReadFile(program.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
