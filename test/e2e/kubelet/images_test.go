// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/binaries"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/registry"
)

// Who may pull from a registry that requires credentials.
const user, password = "alice", "rabbit hole"

// store is a registry on a node's own 127.0.0.1, where container runtimes do without TLS.
type store struct {
	// image is the name of the busybox image in it.
	image string
	// requested is how often a manifest was requested.
	requested atomic.Int64
}

// openStore opens a registry on an address of a node, for as long as the test runs. Its image
// differs from all others: what the kubelet knows of one image, it holds for every name that the
// image has. A locked store wants user and password.
func openStore(t *testing.T, node *cluster.Node, address string, locked bool) *store {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(shared.Programs(), binaries.Busybox))
	if err != nil {
		t.Fatal(err)
	}
	stored := image.NewBusybox(program, "/bin/sh\n/bin/sleep\n/bin/true\n")
	stored.Config.Env = append(stored.Config.Env, "STORE="+address)
	var archive bytes.Buffer
	if err := image.WriteArchive(&archive, runtime.GOARCH, stored); err != nil {
		t.Fatal(err)
	}
	images, err := registry.Read(&archive)
	if err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	if err := node.Sandbox().Do(func() (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s := &store{image: listener.Addr().String() + "/busybox:1"}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, key, _ := r.BasicAuth(); locked && (name != user || key != password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if strings.Contains(r.URL.Path, "/manifests/") {
			s.requested.Add(1)
		}
		images.ServeHTTP(w, r)
	})}
	go server.Serve(listener) //nolint:errcheck // until it is closed
	t.Cleanup(func() { server.Close() })
	return s
}

func TestImagesArePulledAsOftenAsThePolicySays(t *testing.T) {
	compare(t, func(ctx context.Context, t *testing.T, node *cluster.Node) []bool {
		images := openStore(t, node, "127.0.0.1:5001", false)
		namespace := clustertest.Namespace(t, shared.Client)
		var requests []bool
		for _, policy := range []corev1.PullPolicy{corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever,
			corev1.PullAlways} {
			pod := podIn(namespace, node, "web", clustertest.Idle...)
			pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = images.image, policy
			before := images.requested.Load()
			pod = clustertest.RunPod(ctx, t, shared.Client, pod)
			requests = append(requests, images.requested.Load() > before)
			if got := container(pod); got.Image != images.image || !strings.Contains(got.ImageID, "sha256:") {
				t.Errorf("the pod's status says image %q, ID %q", got.Image, got.ImageID)
			}
			if err := shared.Client.DeletePod(ctx, pod); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff([]bool{true, false, false, true}, requests); diff != "" {
			t.Errorf("whether the registry was queried (-want +got):\n%s", diff)
		}
		return requests
	})
}

func TestAPullSecretOpensALockedRegistry(t *testing.T) {
	onBothNodes(t, func(ctx context.Context, t *testing.T, node *cluster.Node) {
		images := openStore(t, node, "127.0.0.1:5002", true)
		pod := newPod(t, node, clustertest.Idle...)
		pod.Spec.Containers[0].Image = images.image
		pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "key"}}
		pod = clustertest.CreatePod(ctx, t, shared.Client, pod)
		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be kept out", pullFailed)

		host, _, _ := strings.Cut(images.image, "/")
		created := kubectl(ctx, t, pod, nil, "create", "secret", "docker-registry", "key", "--docker-server="+host,
			"--docker-username="+user, "--docker-password="+password)
		if created.Code != 0 {
			t.Fatal(created.Stderr)
		}

		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be let in", kube.Ready)
	})
}

// pullFailed says whether the kubelet has given up pulling an image, for now.
func pullFailed(pod *corev1.Pod) bool {
	waiting := container(pod).State.Waiting
	return waiting != nil && (waiting.Reason == "ErrImagePull" || waiting.Reason == "ImagePullBackOff")
}

func TestImagesThatCannotBePulledAreReportedInTheSameWords(t *testing.T) {
	compare(t, func(ctx context.Context, t *testing.T, node *cluster.Node) map[string]string {
		images := openStore(t, node, "127.0.0.1:5003", false)
		locked := openStore(t, node, "127.0.0.1:5004", true)
		namespace := clustertest.Namespace(t, shared.Client)
		said := map[string]string{}
		for name, wanted := range map[string]string{
			"no-such-tag":    strings.TrimSuffix(images.image, ":1") + ":2",
			"no-such-digest": images.image + "@sha256:" + strings.Repeat("0", 64),
			"no-registry":    "127.0.0.1:5999/busybox:1",
			"locked":         locked.image,
			"no-name":        "Not/A/Name",
			"never":          strings.TrimSuffix(images.image, "busybox:1") + "never:1",
		} {
			pod := podIn(namespace, node, name, clustertest.Idle...)
			pod.Spec.Containers[0].Image = wanted
			if name == "never" {
				pod.Spec.Containers[0].ImagePullPolicy = corev1.PullNever
			}
			clustertest.CreatePod(ctx, t, shared.Client, pod)
		}
		for _, name := range []string{"no-such-tag", "no-such-digest", "no-registry", "locked", "no-name", "never"} {
			said[name] = awaitFailedEvent(ctx, t, namespace, name)
		}
		return said
	})
}

// awaitFailedEvent waits until the kubelet has reported in an event that something failed for a
// pod, and returns the first it said, in general. That a volume is not there yet passes by itself,
// on some runs and on either node.
func awaitFailedEvent(ctx context.Context, t *testing.T, namespace, pod string) string {
	t.Helper()
	watch, err := shared.Client.CoreV1().Events(namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.name=" + pod + ",type=" + corev1.EventTypeWarning, ResourceVersion: "0",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		if found, ok := event.Object.(*corev1.Event); ok && found.Reason != "FailedMount" {
			return found.Reason + ": " + inGeneral(found.Message)
		}
	}
	t.Fatalf("no event warns of pod %s: %v", pod, context.Cause(ctx))
	return ""
}
