// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// publishedNode returns node-1 as kubecri publishes it, with one GPU.
func publishedNode(t *testing.T) *corev1.Node {
	t.Helper()
	info := types.NewNodeInfoWithName("node-1")
	info.Capacity["example.com/gpu"], info.Allocatable["example.com/gpu"] = 1, 1
	annotation, err := deviceinfo.EncodeNode(info)
	if err != nil {
		t.Fatal(err)
	}
	counts := corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "node-1", Annotations: map[string]string{deviceinfo.Annotation: annotation},
		},
		Status: corev1.NodeStatus{Capacity: counts, Allocatable: counts.DeepCopy()},
	}
}

func TestCleanupSaysWhatItTookAwayAndTheSecondTimeThatThereWasNothing(t *testing.T) {
	client := fake.NewClientset(publishedNode(t))
	options := &Options{NodeName: "node-1", StateDir: t.TempDir()}
	for _, want := range []string{
		"node \"node-1\": took away the annotation KubeDevice/DeviceInfo and the extended resources example.com/gpu\n",
		"node \"node-1\": kubecri has nothing published\n",
	} {
		var out bytes.Buffer
		if err := cleanUp(t.Context(), &out, client, options); err != nil || out.String() != want {
			t.Errorf("%q, %v; want %q", &out, err, want)
		}
	}
	node, err := client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(node.Annotations)+len(node.Status.Capacity)+len(node.Status.Allocatable) > 0 {
		t.Errorf("left: %v", node)
	}
}

func TestCleanupRefusesWhileAKubecriHasTheRecord(t *testing.T) {
	options := &Options{NodeName: "node-1", StateDir: t.TempDir()}
	checkpoint := grants.New(grants.Options{
		Path: options.grantsPath(), Runtime: noPods{}, Pods: pods.NewRegistry(0),
	})
	if err := checkpoint.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(publishedNode(t))
	var out bytes.Buffer
	err := cleanUp(t.Context(), &out, client, options)
	if err == nil || !strings.Contains(err.Error(), options.StateDir) ||
		!strings.Contains(err.Error(), "systemctl disable --now") {
		t.Errorf("while it runs: %v", err)
	}
	if len(client.Actions()) > 0 {
		t.Errorf("while it runs, the API server is asked: %v", client.Actions())
	}
	if err := checkpoint.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cleanUp(t.Context(), &out, client, options); err != nil {
		t.Errorf("when it has stopped: %v", err)
	}
}

func TestCleanupSaysWhichFlagIsWrong(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	kubeconfig := write(t, filepath.Join(dir, "kubelet.conf"), `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}], contexts: [{name: c, context: {cluster: c, user: u}}],
users: [{name: u}]}`)
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no kubeconfig":                  {nil, "--kubeconfig is missing"},
		"a kubeconfig that is not there": {[]string{"--kubeconfig", missing}, "--kubeconfig: "},
		"a state directory that is not there": {
			[]string{"--kubeconfig", kubeconfig, "--state-dir", missing}, "--state-dir " + missing + " does not exist",
		},
		"an API server that does not answer": {
			[]string{"--kubeconfig", kubeconfig, "--state-dir", dir, "--hostname-override", "node-1"},
			`read node "node-1"`,
		},
		"an argument that cleanup has not": {[]string{"node-1"}, "node-1"},
	} {
		if out, err := execute(append([]string{"cleanup"}, test.args...)...); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %q, %v; want an error with %q", name, out, err, test.want)
		}
	}
}

func TestCleanupWithAnotherNodesIdentitySaysWhoseItNeeds(t *testing.T) {
	client := fake.NewClientset(publishedNode(t))
	client.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, apiruntime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("nodes"), "node-1",
			errors.New("only its own Node object"))
	})
	err := cleanUp(t.Context(), io.Discard, client, &Options{NodeName: "node-1", StateDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(),
		"only its own Node object; --kubeconfig and --hostname-override must be") {
		t.Errorf("%v", err)
	}
}
