// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

func TestForgedAnnotationsAreRefusedOnEveryPath(t *testing.T) {
	ctx := begin(t)
	h := newForgery(ctx, t)
	const (
		mayWrite  = "which only the device scheduler may write"
		mayChange = "only the device scheduler may change it"
		maySend   = "only the device scheduler may send the annotation"
		isNode    = "only the node itself may change its annotation"
	)
	// spell forges an allocation at creation whose words are spelled in some way.
	spell := func(word, as string) func(ctx context.Context, t *testing.T) error {
		return func(ctx context.Context, t *testing.T) error {
			return h.createPod(ctx, h.pod("spelled", strings.ReplaceAll(h.allocationOf(t, "spelled"), word, as)))
		}
	}
	attacks := map[string]struct {
		try  func(ctx context.Context, t *testing.T) error
		want string
	}{
		"an allocation when the pod is created": {func(ctx context.Context, t *testing.T) error {
			return h.createPod(ctx, h.pod("forged", h.allocationOf(t, "forged")))
		}, mayWrite},
		"an allocation when the pod is created, with a node": {func(ctx context.Context, t *testing.T) error {
			pod := h.pod("placed", h.allocationOf(t, "placed"))
			pod.Spec.NodeName = h.node
			return h.createPod(ctx, pod)
		}, mayWrite},
		"an allocation on a pod that waits": {func(ctx context.Context, t *testing.T) error {
			return h.patchPod(ctx, h.waiting, annotate(t, h.allocationOf(t, h.waiting.Name)))
		}, mayWrite},
		"an allocation through the status of a pod that waits": {func(ctx context.Context, t *testing.T) error {
			return h.patchPod(ctx, h.waiting, annotate(t, h.allocationOf(t, h.waiting.Name)), "status")
		}, mayWrite},
		"another allocation on a pod that runs": {func(ctx context.Context, t *testing.T) error {
			return h.patchPod(ctx, h.own, annotate(t, h.allocationOf(t, h.own.Name)))
		}, mayWrite},
		"another allocation through the status of a pod that runs": {func(ctx context.Context, t *testing.T) error {
			return h.patchPod(ctx, h.own, annotate(t, h.allocationOf(t, h.own.Name)), "status")
		}, mayWrite},
		"a request in place of the allocation of a pod that runs": {func(ctx context.Context, t *testing.T) error {
			return h.patchPod(ctx, h.own, annotate(t, `{"requests":{"gpu/gpu-generate-topology":1}}`))
		}, mayChange},
		"no annotation any more on a pod that runs": {func(ctx context.Context, t *testing.T) error {
			return h.patchPod(ctx, h.own, annotate(t, nil))
		}, mayChange},
		"no annotation any more through the status of a pod that runs": {func(ctx context.Context, t *testing.T) error {
			return h.patchPod(ctx, h.own, annotate(t, nil), "status")
		}, mayChange},
		"a binding with an allocation": {func(ctx context.Context, t *testing.T) error {
			return bind(ctx, h.forger, h.waiting, h.node, h.allocationOf(t, h.waiting.Name))
		}, maySend},
		"an escaped letter in a word": {spell("allocatefrom", `\u0061llocatefrom`), mayWrite},
		"escaped letters in all words": {func(ctx context.Context, t *testing.T) error {
			return h.createPod(ctx, h.pod("escaped", escape(h.allocationOf(t, "escaped"))))
		}, mayWrite},
		"a word in capitals":         {spell("allocatefrom", "ALLOCATEFROM"), mayWrite},
		"words in mixed case":        {spell("devrequests", "DevRequests"), mayWrite},
		"a letter that folds to one": {spell("devrequests", "devrequestſ"), mayWrite},
		"a node's inventory, by a user": {func(ctx context.Context, t *testing.T) error {
			return patchNode(ctx, h.forger, h.node, annotate(t, `{}`))
		}, isNode},
		"a node's inventory through its status, by a user": {func(ctx context.Context, t *testing.T) error {
			return patchNode(ctx, h.forger, h.node, annotate(t, `{}`), "status")
		}, isNode},
		"no inventory of a node any more, by a user": {func(ctx context.Context, t *testing.T) error {
			return patchNode(ctx, h.forger, h.node, annotate(t, nil))
		}, isNode},
		"a node's inventory, by another node": {func(ctx context.Context, t *testing.T) error {
			other, err := shared.Client.As("system:node:"+shared.Nodes[1].Name, "system:nodes")
			if err != nil {
				t.Fatal(err)
			}
			return patchNode(ctx, other, h.node, annotate(t, `{}`), "status")
		}, "is not allowed to modify node"},
		"a node's inventory, by who has a node's name only": {func(ctx context.Context, t *testing.T) error {
			name, err := shared.Client.As("system:node:"+h.node, forger)
			if err != nil {
				t.Fatal(err)
			}
			return patchNode(ctx, name, h.node, annotate(t, `{}`))
		}, isNode},
	}
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			err := attack.try(begin(t), t)
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), attack.want) {
				t.Errorf("got %v, want a refusal that says %q", err, attack.want)
			}
		})
	}
	h.expectUnchanged(ctx, t)
}

// escape writes every letter of a JSON text's words as a number.
func escape(text string) string {
	for _, word := range []string{"devrequests", "allocatefrom", "nodename"} {
		escaped := strings.Builder{}
		for _, letter := range word {
			escaped.WriteString(`\u00` + string("0123456789abcdef"[letter/16]) + string("0123456789abcdef"[letter%16]))
		}
		text = strings.ReplaceAll(text, word, escaped.String())
	}
	return text
}

func TestAnnotationsThatPoliciesAdmitMoveNoDevice(t *testing.T) {
	ctx := begin(t)
	h := newForgery(ctx, t)
	misspelled := h.pod("misspelled", "")
	misspelled.Annotations = map[string]string{
		strings.ToLower(deviceinfo.Annotation): h.allocationOf(t, "misspelled"),
	}
	misspelled, err := h.forger.CreatePod(ctx, misspelled)
	if err != nil {
		t.Fatal(err)
	}
	clustertest.AwaitPod(ctx, t, shared.Client, misspelled, "to wait for the right key", kube.Unschedulable)
	if err := shared.Client.DeletePod(ctx, misspelled); err != nil {
		t.Fatal(err)
	}
	for name, annotations := range map[string]map[string]string{
		"wide letters in the words": {
			deviceinfo.Annotation: strings.NewReplacer("devrequests", "ｄevrequests", "allocatefrom", "ａllocatefrom",
				"nodename", "ｎodename").Replace(h.allocationOf(t, "let-through")),
		},
		"the key of the node's own record":    {"KubeDevice/Grant": h.allocationOf(t, "let-through")},
		"a pod that says it is a static one":  {"kubernetes.io/config.source": "file"},
		"a request that names nothing chosen": {deviceinfo.Annotation: `{"podname":"victim","requests":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := begin(t)
			pod := h.pod("let-through", "")
			pod.Annotations = annotations
			created, err := h.forger.CreatePod(ctx, pod)
			if err != nil {
				t.Fatal(err)
			}
			created = clustertest.AwaitPod(ctx, t, shared.Client, created, "to be ready", kube.Ready)

			seen := inspect(ctx, t, created, "main")
			if len(seen.Chosen) != 1 || seen.Paths[0] == string(h.card) {
				t.Errorf("the pod was allocated %q, want one device other than the holder's %s", seen.Paths, h.card)
			}
			if err := shared.Client.DeletePod(ctx, created); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("writing a running pod where annotations do not count", func(t *testing.T) {
		ctx := begin(t)
		var written *corev1.Pod
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			pod, err := h.forger.CoreV1().Pods(h.namespace).Get(ctx, h.own.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			pod.Annotations[deviceinfo.Annotation] = h.allocationOf(t, pod.Name)
			written, err = h.forger.CoreV1().Pods(h.namespace).UpdateEphemeralContainers(ctx, pod.Name, pod,
				metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if written.Annotations[deviceinfo.Annotation] != h.own.Annotations[deviceinfo.Annotation] {
			t.Errorf("the annotation has become %s", written.Annotations[deviceinfo.Annotation])
		}
	})
	h.expectUnchanged(ctx, t)
}

func TestWithoutThePoliciesForgedAllocationsAreOverwrittenAndChangedOnesIgnored(t *testing.T) {
	ctx := begin(t)
	h := newForgery(ctx, t)
	withoutPolicies(ctx, t, h)

	forged, err := h.forger.CreatePod(ctx, h.pod("forged", h.allocationOf(t, "forged")))
	if err != nil {
		t.Fatal(err)
	}
	forged = clustertest.AwaitPod(ctx, t, shared.Client, forged, "to be ready", kube.Ready)
	if paths := inspect(ctx, t, forged, "main").Paths; len(paths) != 1 || paths[0] == string(h.card) {
		t.Errorf("the pod was allocated %q, want one device other than the holder's %s", paths, h.card)
	}
	if err := h.patchPod(ctx, h.own, annotate(t, h.allocationOf(t, h.own.Name))); err != nil {
		t.Fatal(err)
	}
	h.expectUnchanged(ctx, t)
}

// withoutPolicies takes the policy on pods out of force until the test ends.
func withoutPolicies(ctx context.Context, t *testing.T, h *forgery) {
	t.Helper()
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	awaitForgeries := func(ctx context.Context, refused bool) {
		clustertest.Await(ctx, t, "the policy on pods to change", func() bool {
			_, err := shared.Client.CoreV1().Pods(h.namespace).Create(ctx, h.pod("probe", h.allocationOf(t, "probe")),
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil && !apierrors.IsForbidden(err) {
				t.Fatal(err)
			}
			return (err != nil) == refused
		})
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		if err := shared.Apply(ctx, filepath.Join(root, "deploy", "policies")); err != nil {
			t.Fatal(err)
		}
		awaitForgeries(ctx, true)
	})
	bindings := shared.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	if err := bindings.Delete(ctx, "kubedevice-pod-allocations", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitForgeries(ctx, false)
}
