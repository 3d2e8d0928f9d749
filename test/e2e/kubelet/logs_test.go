// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

func TestLogsAreThoseOfThisLifeOrOfThePreviousOne(t *testing.T) {
	onBothNodes(t, func(ctx context.Context, t *testing.T, node *cluster.Node) {
		pod := newPod(t, node, "sh", "-c",
			`if [ -e /state/second ]; then echo second life; echo still here; exec sleep 86400; fi
			touch /state/second; echo first life >&2; exit 1`)
		pod.Spec.Volumes = []corev1.Volume{{Name: "state",
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "state", MountPath: "/state"}}
		pod = clustertest.CreatePod(ctx, t, shared.Client, pod)
		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to run again",
			func(pod *corev1.Pod) bool { return container(pod).RestartCount == 1 && kube.Ready(pod) })

		clustertest.Await(ctx, t, "the second life to have its say", func() bool {
			return strings.Contains(kubectl(ctx, t, pod, nil, "logs", "web").Stdout, "still here")
		})
		for args, want := range map[string]string{
			"logs web":                                   "second life\nstill here\n",
			"logs web --previous":                        "first life\n",
			"logs web --tail=1":                          "still here\n",
			"logs web --limit-bytes=6":                   "second",
			"logs web --all-containers --prefix":         "[pod/web/main] second life\n[pod/web/main] still here\n",
			"logs web --since-time=2999-01-01T00:00:00Z": "",
		} {
			got := kubectl(ctx, t, pod, nil, strings.Fields(args)...)
			if diff := cmp.Diff(outcome{Stdout: want}, got); diff != "" {
				t.Errorf("kubectl %s (-want +got):\n%s", args, diff)
			}
		}
	})
}

func TestLogsAreFollowedUntilTheContainerEnds(t *testing.T) {
	onBothNodes(t, func(ctx context.Context, t *testing.T, node *cluster.Node) {
		pod := newPod(t, node, "sh", "-c", "echo one; until [ -e /tmp/go ]; do sleep 0.1; done; echo two; echo three")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod = clustertest.RunPod(ctx, t, shared.Client, pod)

		logs := follow(ctx, t, pod, "logs", "--follow", pod.Name)
		logs.awaitLine(t, "one")
		inside(ctx, t, pod, "touch", "/tmp/go")

		if got := logs.rest(t); got != "two\nthree\n" {
			t.Errorf("the last lines are %q", got)
		}
	})
}

func TestLogsAreRotatedAndFollowedFromFileToFile(t *testing.T) {
	onBothNodes(t, func(ctx context.Context, t *testing.T, node *cluster.Node) {
		pod := clustertest.RunPod(ctx, t, shared.Client, newPod(t, node, "sh", "-c",
			"echo begin; until [ -e /tmp/go ]; do sleep 0.1; done; "+
				"until [ -e /tmp/stop ]; do seq 1000; sleep 0.2; done; echo the end; sleep 86400"))
		logs := follow(ctx, t, pod, "logs", "--follow", pod.Name)
		logs.awaitLine(t, "begin") // before the first rotation, for which kubectl would miss the file
		inside(ctx, t, pod, "touch", "/tmp/go")

		awaitRotated(ctx, t, filepath.Join(node.Var(), "log", "pods", pod.Namespace+"_"+pod.Name+"_"+string(pod.UID),
			"main"))
		inside(ctx, t, pod, "touch", "/tmp/stop")

		logs.awaitLine(t, "the end")
	})
}

// awaitRotated waits until the directory with a container's logs has more than the file that is
// being written.
func awaitRotated(ctx context.Context, t *testing.T, directory string) {
	t.Helper()
	if err := await.Until(ctx, "a second file in "+directory, func(context.Context) (bool, error) {
		files, err := os.ReadDir(directory)
		return len(files) > 1, err
	}); err != nil {
		t.Fatal(err)
	}
}
